//! Every rule that an input must keep. Each broken rule is one fault, at the token that breaks it.

use crate::ast::{Field, Input, Shape, Variant};
use crate::attr::{written, Checkpoint, Content, SKIP};
use crate::errors::Errors;
use crate::similar::similar;
use syn::{Error, Fields, Meta};

/// The keys that a field's `#[checkpoint(...)]` can have.
const FIELD_KEYS: [&str; 1] = [SKIP];

impl Input<'_> {
    /// Adds every broken rule to `errors`.
    pub fn validate(&self, errors: &mut Errors) {
        let place = match &self.shape {
            Shape::Struct(..) => "a struct",
            Shape::Enum(_) => "an enum",
            Shape::Union(union_token) => {
                let rule = "`#[derive(Parameters)]` cannot tell which field of a union is in use";
                return errors.push(union_token, format!("{rule}: make it an enum with one field a variant"));
            }
        };
        misplaced(&self.attributes, place, "put it on each field that holds no parameters", errors);
        match &self.shape {
            Shape::Struct(fields, _) => fields.iter().for_each(|field| field.validate(errors)),
            Shape::Enum(variants) => variants.iter().for_each(|variant| variant.validate(errors)),
            Shape::Union(_) => {}
        }
    }
}

impl Variant<'_> {
    fn validate(&self, errors: &mut Errors) {
        let ident = self.ident;
        let way_out = format!("put it on the variant's field: `{ident}(#[checkpoint(skip)] Type)`");
        misplaced(&self.attributes, "a variant", &way_out, errors);
        self.validate_shape(errors);
        self.fields.iter().for_each(|field| field.validate(errors));
    }

    fn validate_shape(&self, errors: &mut Errors) {
        let ident = self.ident;
        let rule = "each variant of an enum that derives `Parameters` holds exactly one unnamed field";
        let empty = format!(
            "{rule}, `{ident}` has none: write `{ident}(Type)`; `Type` can be a unit struct that derives `Parameters`"
        );
        match self.original_fields {
            Fields::Unit => errors.push(ident, empty),
            Fields::Unnamed(fields) => match fields.unnamed.len() {
                0 => errors.push(fields, empty),
                1 => {}
                count => {
                    errors.push(fields, format!("{rule}, `{ident}` has {count}: hold them in a struct or a tuple"));
                }
            },
            Fields::Named(fields) => errors.push(
                fields,
                format!("{rule}, those of `{ident}` have names: move them into a struct and write `{ident}(Type)`"),
            ),
        }
    }
}

impl Field<'_> {
    fn validate(&self, errors: &mut Errors) {
        let mut skipped = false;
        for Checkpoint { original, content } in &self.attributes {
            let whole = written(original);
            let way_out = "write `#[checkpoint(skip)]`, or remove the attribute";
            match content {
                Content::Keys(keys) if !keys.is_empty() => {
                    keys.iter().for_each(|key| check_key(key, &whole, &mut skipped, errors));
                }
                Content::Keys(_) | Content::Missing => {
                    errors.push(original, format!("`{whole}` has no key: {way_out}"));
                }
                Content::Value => {
                    errors.push(
                        original,
                        format!("`{whole}` has a value instead of keys in parentheses: {way_out}"),
                    );
                }
                Content::Unreadable(error) => errors.add(Error::new(
                    error.span(),
                    format!("`{whole}` is not a list of keys, {error}: {way_out}"),
                )),
            }
        }
    }
}

/// Checks one key of a field's attribute `whole`; `skipped` says whether a `skip` came before it.
fn check_key(key: &Meta, whole: &str, skipped: &mut bool, errors: &mut Errors) {
    if !key.path().is_ident(SKIP) {
        let name = written(key.path());
        let way_out = match similar(&name, &FIELD_KEYS) {
            Some(known) => format!("did you mean `{known}`?"),
            None => "a field has the key `skip` only: it holds no parameters".to_owned(),
        };
        errors.push(key.path(), format!("unknown key `{name}` in `{whole}`: {way_out}"));
        return;
    }
    if !matches!(key, Meta::Path(_)) {
        let rule = "in `#[checkpoint(...)]` takes no value";
        errors.push(key, format!("`{}` {rule}: write `#[checkpoint(skip)]`", written(key)));
    } else if *skipped {
        errors.push(
            key,
            format!("duplicate `skip` in `{whole}`: the field is skipped already, remove this one"),
        );
    }
    *skipped = true;
}

/// Refuses every attribute of `attributes`: on `place` it means nothing.
fn misplaced(attributes: &[Checkpoint], place: &str, way_out: &str, errors: &mut Errors) {
    for Checkpoint { original, .. } in attributes {
        errors.push(original, format!("`{}` means nothing on {place}: {way_out}", written(original)));
    }
}
