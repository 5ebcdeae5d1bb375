//! The helper attribute `#[spatial_split(...)]` as it is written: its steps, with what cannot be read among them.
//!
//! ```text
//! chain  = step, step, ...
//! step   = field | join(op; branch, branch, ...)
//! branch = step | (chain)
//! op     = word | self.method
//! ```

use crate::attr::written;
use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::{Attribute, Error, Index, Member, Meta};

/// The word before the parentheses of a join.
const JOIN: &str = "join";

/// One `#[spatial_split...]`.
pub struct Split<'a> {
    /// The whole attribute, for spans and for quoting it back.
    pub original: &'a Attribute,
    /// What it says.
    pub content: Content,
}

/// What an attribute says.
pub enum Content {
    /// `#[spatial_split(step, step, ...)]`; possibly none.
    Chain(Vec<Step>),
    /// `#[spatial_split]`.
    Missing,
    /// `#[spatial_split = value]`.
    Value,
}

/// One step of a chain.
pub enum Step {
    /// A field, by name or index.
    Field(Member),
    /// `join(...)`.
    Join(Join),
    /// Something else.
    Unreadable(Unreadable),
}

/// `join(op; branch, branch, ...)`.
pub struct Join {
    /// The word and its parentheses, for spans.
    pub original: TokenStream,
    /// How the branches' outputs become one.
    pub op: Op,
    /// The branches.
    pub branches: Vec<Branch>,
}

/// How the outputs of branches become one.
pub enum Op {
    /// `word`.
    Word(Ident),
    /// `self.method`.
    Method(Ident),
    /// Nothing: there is no `;`, or nothing before it.
    Missing,
    /// Something else.
    Unreadable(TokenStream),
}

/// One branch of a join.
pub struct Branch {
    /// As it is written, for spans.
    pub original: TokenStream,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// Tokens that are no step.
pub struct Unreadable {
    /// What is wrong.
    pub error: Error,
    /// The names in it, which may be meant as fields.
    pub names: Vec<String>,
}

impl<'a> Split<'a> {
    /// What `original` says.
    pub fn from_syn(original: &'a Attribute) -> Self {
        let content = match &original.meta {
            Meta::Path(_) => Content::Missing,
            Meta::NameValue(_) => Content::Value,
            Meta::List(list) => Content::Chain(chain(list.tokens.clone())),
        };
        Split { original, content }
    }

    /// Its steps.
    pub fn steps(&self) -> &[Step] {
        match &self.content {
            Content::Chain(steps) => steps,
            Content::Missing | Content::Value => &[],
        }
    }
}

/// How a field is named in messages and paths: without `r#`.
pub fn name(member: &Member) -> String {
    match member {
        Member::Named(ident) => ident.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}

/// Whether a method is called by one of the steps.
pub fn joins_by_method(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::Join(join) => {
            let inside = join.branches.iter().any(|branch| joins_by_method(&branch.steps));
            matches!(join.op, Op::Method(_)) || inside
        }
        _ => false,
    })
}

fn chain(tokens: TokenStream) -> Vec<Step> {
    items(flat(tokens)).into_iter().map(Step::from_item).collect()
}

/// The tokens without the invisible groups that `macro_rules!` puts around fragments.
fn flat(tokens: TokenStream) -> Vec<TokenTree> {
    let each = tokens.into_iter().flat_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => flat(group.stream()),
        other => vec![other],
    });
    each.collect()
}

/// What stands between two commas, and the comma after it.
#[derive(Default)]
struct Item {
    tokens: Vec<TokenTree>,
    comma: Option<TokenTree>,
}

impl Item {
    /// As it is written, for spans; the comma if there is nothing else.
    fn original(&self) -> TokenStream {
        let tokens = self.tokens.iter().cloned();
        match tokens.len() {
            0 => self.comma.iter().cloned().collect(),
            _ => tokens.collect(),
        }
    }
}

fn items(tokens: Vec<TokenTree>) -> Vec<Item> {
    let mut items = Vec::new();
    let mut item = Item::default();
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ',' => {
                item.comma = Some(punct.into());
                items.push(std::mem::take(&mut item));
            }
            other => item.tokens.push(other),
        }
    }
    if !item.tokens.is_empty() {
        items.push(item);
    }
    items
}

fn parentheses(token: &TokenTree) -> Option<&Group> {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group),
        _ => None,
    }
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

impl Step {
    fn from_item(item: Item) -> Self {
        let problem = match item.tokens.as_slice() {
            [TokenTree::Ident(ident)] => return Step::Field(Member::Named(ident.clone())),
            [TokenTree::Literal(literal)] => match literal.to_string().parse() {
                Ok(index) => return Step::Field(Member::Unnamed(Index { index, span: literal.span() })),
                Err(_) => {
                    "a step is a field (a name, or the index in a tuple struct) or `join(op; branch, branch)`"
                }
            },
            [TokenTree::Ident(ident), group] if ident == JOIN && parentheses(group).is_some() => {
                return Step::Join(Join::from_item(&item, group));
            }
            [] => "a comma with no step before it: remove it",
            [group] if parentheses(group).is_some() => {
                "parentheses stand around a branch of a join only: write the steps without them"
            }
            [TokenTree::Ident(_), group] if parentheses(group).is_some() => {
                "the only step with parentheses is `join(op; branch, branch)`"
            }
            _ => "a step is a field or `join(op; branch, branch)`, and a comma follows it",
        };
        let original = item.original();
        let tokens = written(&original);
        let rule = format!("`{}` in `#[spatial_split(...)]` cannot be read", tokens.trim_end());
        Step::Unreadable(Unreadable {
            error: Error::new_spanned(original, format!("{rule}: {problem}")),
            names: names(item.tokens.into_iter().collect()),
        })
    }
}

impl Join {
    fn from_item(item: &Item, group: &TokenTree) -> Self {
        let tokens = parentheses(group).map(|group| flat(group.stream())).unwrap_or_default();
        let (op, branches) = match tokens.iter().position(|token| is_punct(token, ';')) {
            Some(semicolon) => (&tokens[..semicolon], &tokens[semicolon + 1..]),
            None => (&[] as &[TokenTree], tokens.as_slice()),
        };
        Join {
            original: item.original(),
            op: Op::from_tokens(op),
            branches: items(branches.to_vec()).into_iter().map(Branch::from_item).collect(),
        }
    }
}

impl Op {
    fn from_tokens(tokens: &[TokenTree]) -> Self {
        match tokens {
            [] => Op::Missing,
            [TokenTree::Ident(word)] if word != "self" => Op::Word(word.clone()),
            [TokenTree::Ident(this), dot, TokenTree::Ident(method)]
                if this == "self" && is_punct(dot, '.') =>
            {
                Op::Method(method.clone())
            }
            other => Op::Unreadable(other.iter().cloned().collect()),
        }
    }
}

impl Branch {
    fn from_item(item: Item) -> Self {
        let original = item.original();
        let steps = match item.tokens.as_slice() {
            [group] => parentheses(group).map(|group| chain(group.stream())),
            _ => None,
        };
        Branch { original, steps: steps.unwrap_or_else(|| vec![Step::from_item(item)]) }
    }

    /// Whether all of its own steps can be read.
    pub fn is_readable(&self) -> bool {
        !self.steps.iter().any(|step| matches!(step, Step::Unreadable(_)))
    }
}

/// The identifiers and numbers in `tokens`.
fn names(tokens: TokenStream) -> Vec<String> {
    let each = tokens.into_iter().flat_map(|token| match token {
        TokenTree::Group(group) => names(group.stream()),
        TokenTree::Ident(ident) => vec![ident.unraw().to_string()],
        TokenTree::Literal(literal) => vec![literal.to_string()],
        TokenTree::Punct(_) => Vec::new(),
    });
    each.collect()
}
