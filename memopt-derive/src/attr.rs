//! The helper attribute `#[checkpoint(...)]` as it is written, before any rule is applied.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Expr, Lit, LitStr, Meta, Token};

/// The name of the attribute that is read here.
const CHECKPOINT: &str = "checkpoint";

/// The name of the attribute that `split` reads.
const SPATIAL_SPLIT: &str = "spatial_split";

/// The key of a field that holds no parameters.
pub const SKIP: &str = "skip";

/// The key of a field whose input is kept by a compressor.
pub const COMPRESSOR: &str = "compressor";

/// The key of a type that makes a good segment.
pub const SEGMENT: &str = "segment";

/// The key of a type that can be run in time chunks.
pub const TIME_CHUNKS: &str = "time_chunks";

/// The key of a type whose forward is a method.
pub const FORWARD: &str = "forward";

/// One `#[checkpoint...]`.
pub struct Checkpoint<'a> {
    /// The whole attribute, for spans and for quoting it back.
    pub original: &'a Attribute,
    /// What it says.
    pub content: Content,
}

/// What an attribute says.
pub enum Content {
    /// `#[checkpoint(key, key = value, ...)]`; possibly none.
    Keys(Vec<Meta>),
    /// `#[checkpoint]`.
    Missing,
    /// `#[checkpoint = value]`.
    Value,
    /// `#[checkpoint(...)]` around something that is not a list of keys.
    Unreadable(Error),
}

/// The `#[checkpoint...]` among `attributes`.
pub fn checkpoints(attributes: &[Attribute]) -> Vec<Checkpoint<'_>> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident(CHECKPOINT))
        .map(|original| Checkpoint { original, content: Content::from_syn(original) })
        .collect()
}

/// The `#[spatial_split...]` among `attributes`.
pub fn splits(attributes: &[Attribute]) -> Vec<&Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident(SPATIAL_SPLIT)).collect()
}

/// The first key called `name`.
pub fn find<'a>(attributes: &'a [Checkpoint], name: &str) -> Option<&'a Meta> {
    let keys = attributes.iter().flat_map(|attribute| match &attribute.content {
        Content::Keys(keys) => keys.as_slice(),
        _ => &[],
    });
    keys.into_iter().find(|key| key.path().is_ident(name))
}

/// The string that `key = "string"` holds.
pub fn text(key: &Meta) -> Option<&LitStr> {
    let mut value = match key {
        Meta::NameValue(key) => &key.value,
        _ => return None,
    };
    // A literal that came through a `macro_rules!` fragment.
    while let Expr::Group(group) = value {
        value = &group.expr;
    }
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

impl Content {
    fn from_syn(attribute: &Attribute) -> Self {
        match &attribute.meta {
            Meta::Path(_) => Content::Missing,
            Meta::NameValue(_) => Content::Value,
            Meta::List(list) => match list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) {
                Ok(keys) => Content::Keys(keys.into_iter().collect()),
                Err(error) => Content::Unreadable(error),
            },
        }
    }
}

/// `tokens` spaced as a person writes an attribute, to quote it in a message.
pub fn written(tokens: impl ToTokens) -> String {
    let mut text = String::new();
    write(tokens.into_token_stream(), &mut text);
    text
}

fn write(tokens: TokenStream, text: &mut String) {
    let mut after_word = false;
    for token in tokens {
        let word = matches!(token, TokenTree::Ident(_) | TokenTree::Literal(_));
        if word && after_word {
            text.push(' ');
        }
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                text.push_str(open);
                write(group.stream(), text);
                text.truncate(text.trim_end().len());
                text.push_str(close);
            }
            TokenTree::Punct(punct) if punct.as_char() == '=' => text.push_str(" = "),
            TokenTree::Punct(punct) if matches!(punct.as_char(), ',' | ';') => {
                text.push(punct.as_char());
                text.push(' ');
            }
            other => text.push_str(&other.to_string()),
        }
        after_word = word;
    }
}
