//! The typed view of the input that the later stages read.

use crate::attr::{self, Checkpoint, Content, SKIP};
use crate::generics::Names;
use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Fields, Generics, Ident, Index, Member, Token, Type};

/// The type that derives.
pub struct Input<'a> {
    /// Its `#[checkpoint...]`.
    pub attributes: Vec<Checkpoint<'a>>,
    /// Its name.
    pub ident: &'a Ident,
    /// Its generic parameters and `where` clause.
    pub generics: &'a Generics,
    /// What it is made of.
    pub shape: Shape<'a>,
}

/// What a type is made of.
pub enum Shape<'a> {
    /// A struct's fields.
    Struct(Vec<Field<'a>>, Delimiters),
    /// An enum's variants.
    Enum(Vec<Variant<'a>>),
    /// A union, of which only the keyword is of interest.
    Union(&'a Token![union]),
}

/// What fields are written in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Delimiters {
    /// `{ name: Type }`
    Braces,
    /// `(Type)`
    Parentheses,
    /// Nothing: a unit struct or variant.
    Nothing,
}

/// A variant of an enum.
pub struct Variant<'a> {
    /// Its `#[checkpoint...]`.
    pub attributes: Vec<Checkpoint<'a>>,
    /// Its name.
    pub ident: &'a Ident,
    /// Its fields, with their delimiters.
    pub original_fields: &'a Fields,
    /// Its fields.
    pub fields: Vec<Field<'a>>,
}

/// A field of a struct or of a variant.
pub struct Field<'a> {
    /// Its `#[checkpoint...]`.
    pub attributes: Vec<Checkpoint<'a>>,
    /// Its name or index, to access it.
    pub member: Member,
    /// Its step of the path: the name without `r#`, or the index.
    pub step: String,
    /// Its type.
    pub ty: &'a Type,
    /// Whether the implementation needs a bound on its type: it mentions a type parameter. The deriving type itself
    /// gets none, since a bound on it would require itself.
    pub needs_bound: bool,
}

impl<'a> Input<'a> {
    /// The view of `node`.
    pub fn from_syn(node: &'a DeriveInput) -> Self {
        let names = Names::new(node);
        let shape = match &node.data {
            Data::Struct(data) => {
                Shape::Struct(Field::multiple(&data.fields, &names), Delimiters::from_syn(&data.fields))
            }
            Data::Enum(data) => {
                Shape::Enum(data.variants.iter().map(|node| Variant::from_syn(node, &names)).collect())
            }
            Data::Union(data) => Shape::Union(&data.union_token),
        };
        Input { attributes: attr::get(&node.attrs), ident: &node.ident, generics: &node.generics, shape }
    }
}

impl Delimiters {
    /// The delimiters of `fields`.
    pub fn from_syn(fields: &Fields) -> Self {
        match fields {
            Fields::Named(_) => Delimiters::Braces,
            Fields::Unnamed(_) => Delimiters::Parentheses,
            Fields::Unit => Delimiters::Nothing,
        }
    }
}

impl<'a> Variant<'a> {
    fn from_syn(node: &'a syn::Variant, names: &Names<'a>) -> Self {
        Variant {
            attributes: attr::get(&node.attrs),
            ident: &node.ident,
            original_fields: &node.fields,
            fields: Field::multiple(&node.fields, names),
        }
    }
}

impl<'a> Field<'a> {
    fn multiple(fields: &'a Fields, names: &Names<'a>) -> Vec<Self> {
        fields.iter().zip(0..).map(|(node, index)| Field::from_syn(index, node, names)).collect()
    }

    fn from_syn(index: u32, node: &'a syn::Field, names: &Names<'a>) -> Self {
        Field {
            attributes: attr::get(&node.attrs),
            member: match &node.ident {
                Some(name) => Member::Named(name.clone()),
                None => Member::Unnamed(Index { index, span: Span::call_site() }),
            },
            step: node.ident.as_ref().map_or_else(|| index.to_string(), |name| name.unraw().to_string()),
            ty: &node.ty,
            needs_bound: names.needs_bound(&node.ty),
        }
    }

    /// Whether it is marked `#[checkpoint(skip)]`.
    pub fn skipped(&self) -> bool {
        self.attributes.iter().any(|attribute| match &attribute.content {
            Content::Keys(keys) => keys.iter().any(|key| key.path().is_ident(SKIP)),
            _ => false,
        })
    }
}
