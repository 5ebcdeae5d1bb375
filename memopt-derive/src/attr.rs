//! The helper attribute `#[checkpoint(...)]` as it is written, before any rule is applied.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Meta, Token};

/// The attribute's name.
const CHECKPOINT: &str = "checkpoint";

/// The key of a field that holds no parameters.
pub const SKIP: &str = "skip";

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
pub fn get(attributes: &[Attribute]) -> Vec<Checkpoint<'_>> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident(CHECKPOINT))
        .map(|original| Checkpoint { original, content: Content::from_syn(original) })
        .collect()
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
                text.push_str(close);
            }
            TokenTree::Punct(punct) if punct.as_char() == '=' => text.push_str(" = "),
            TokenTree::Punct(punct) if punct.as_char() == ',' => text.push_str(", "),
            other => text.push_str(&other.to_string()),
        }
        after_word = word;
    }
}
