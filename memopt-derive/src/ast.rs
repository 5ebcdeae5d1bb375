//! The typed view of the input that the later stages read.

use crate::attr::{self, Checkpoint, COMPRESSOR, FORWARD, SKIP};
use crate::generics::Names;
use crate::split::Split;
use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::{Attribute, Data, DeriveInput, Fields, Generics, Ident, Index, LitStr, Member, Token, Type};

/// Which macro runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Derive {
    /// `#[derive(Parameters)]`
    Parameters,
    /// `#[derive(Checkpointable)]`, which implements `Parameters` too.
    Checkpointable,
}

/// The type that derives.
pub struct Input<'a> {
    /// Which macro runs.
    pub derive: Derive,
    /// Its `#[checkpoint...]`.
    pub attributes: Vec<Checkpoint<'a>>,
    /// Its `#[spatial_split...]`.
    pub splits: Vec<Split<'a>>,
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
    /// Its `#[spatial_split...]`, which means nothing there.
    pub splits: Vec<&'a Attribute>,
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
    /// Its `#[spatial_split...]`, which means nothing there.
    pub splits: Vec<&'a Attribute>,
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

/// What a field is to the type that holds it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Run by the macro's own `forward`: it is `Checkpointable`.
    Part,
    /// Visited only: it is `Parameters`.
    Parameters,
    /// Cloned only: it is `Clone`.
    Skipped,
}

impl<'a> Input<'a> {
    /// The view of `node`.
    pub fn from_syn(node: &'a DeriveInput, derive: Derive) -> Self {
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
        Input {
            derive,
            attributes: attr::checkpoints(&node.attrs),
            splits: attr::splits(&node.attrs).into_iter().map(Split::from_syn).collect(),
            ident: &node.ident,
            generics: &node.generics,
            shape,
        }
    }

    /// Whether it has the key `name`.
    pub fn has(&self, name: &str) -> bool {
        attr::find(&self.attributes, name).is_some()
    }

    /// The method that is its forward: `#[checkpoint(forward = "method")]`.
    pub fn method(&self) -> Option<&LitStr> {
        attr::find(&self.attributes, FORWARD).and_then(attr::text)
    }

    /// Its fields, over all variants.
    pub fn fields(&self) -> Vec<&Field<'a>> {
        match &self.shape {
            Shape::Struct(fields, _) => fields.iter().collect(),
            Shape::Enum(variants) => variants.iter().flat_map(|variant| &variant.fields).collect(),
            Shape::Union(_) => Vec::new(),
        }
    }

    /// What `field` is to it.
    pub fn role(&self, field: &Field) -> Role {
        match self.derive {
            _ if field.skipped() => Role::Skipped,
            Derive::Checkpointable if !self.has(FORWARD) => Role::Part,
            _ => Role::Parameters,
        }
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
            attributes: attr::checkpoints(&node.attrs),
            splits: attr::splits(&node.attrs),
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
            attributes: attr::checkpoints(&node.attrs),
            splits: attr::splits(&node.attrs),
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
        attr::find(&self.attributes, SKIP).is_some()
    }

    /// The compressor of its input: `#[checkpoint(compressor = "name")]`.
    pub fn compressor(&self) -> Option<&LitStr> {
        attr::find(&self.attributes, COMPRESSOR).and_then(attr::text)
    }
}
