//! Every rule that an input must keep. Each broken rule is one fault, at the token that breaks it.

mod keys;
mod split;

use crate::ast::{Derive, Field, Input, Role, Shape, Variant};
use crate::attr::{self, written, Checkpoint, COMPRESSOR, FORWARD};
use crate::errors::Errors;
use keys::{FIELD, MODEL, PART};
use syn::{Attribute, Fields};

impl Derive {
    /// What it implements, as messages call it.
    fn name(self) -> &'static str {
        match self {
            Derive::Parameters => "Parameters",
            Derive::Checkpointable => "Checkpointable",
        }
    }
}

impl Input<'_> {
    /// Adds every broken rule to `errors`.
    pub fn validate(&self, errors: &mut Errors) {
        let place = match &self.shape {
            Shape::Struct(..) => "a struct",
            Shape::Enum(_) => "an enum",
            Shape::Union(union_token) => {
                let derive = self.derive.name();
                let rule = format!("`#[derive({derive})]` cannot tell which field of a union is in use");
                return errors.push(union_token, format!("{rule}: make it an enum with one field a variant"));
            }
        };
        match self.derive {
            Derive::Parameters => {
                misplaced(&self.attributes, place, "put it on each field that holds no parameters", errors);
            }
            Derive::Checkpointable => keys::check(&self.attributes, &MODEL, errors),
        }
        match &self.shape {
            Shape::Struct(fields, _) => self.validate_struct(fields, errors),
            Shape::Enum(variants) => self.validate_enum(variants, errors),
            Shape::Union(_) => {}
        }
    }

    fn validate_struct(&self, fields: &[Field], errors: &mut Errors) {
        if self.derive == Derive::Checkpointable {
            self.validate_forward(fields, errors);
        }
        for field in fields {
            field.validate(self.derive, errors);
            if self.role(field) == Role::Parameters && self.splits.is_empty() {
                let way_out = "that method runs the field itself; remove the key";
                uncompressed(field, "where a method is the forward", way_out, errors);
            }
        }
    }

    /// The forward is said once: by a split or by a method.
    fn validate_forward(&self, fields: &[Field], errors: &mut Errors) {
        let forward = attr::find(&self.attributes, FORWARD);
        if let (Some(key), Some(split)) = (forward, self.splits.first()) {
            let rule =
                format!("`{}` and `{}` both say what the forward is", written(key), written(split.original));
            errors.push(key, format!("{rule}: remove one of them"));
        }
        let misplaced = fields.iter().any(|field| !field.splits.is_empty());
        if forward.is_none() && self.splits.is_empty() && !misplaced {
            let ident = self.ident;
            let parts: Vec<&str> =
                fields.iter().filter(|field| !field.skipped()).map(|field| field.step.as_str()).collect();
            let parts = if parts.is_empty() { "first, second".to_owned() } else { parts.join(", ") };
            errors.push(
                ident,
                format!(
                    "`{ident}` does not say how it runs: add `#[spatial_split({parts})]` with its fields in the order in which they run, or `#[checkpoint(forward = \"run\")]` with the name of a method"
                ),
            );
        }
        if let Some(again) = self.splits.get(1) {
            let whole = written(again.original);
            errors.push(
                again.original,
                format!(
                    "duplicate `#[spatial_split(...)]`: `{whole}` is the second, write one with all steps"
                ),
            );
        }
        if let Some(split) = self.splits.first() {
            split::validate(split, fields, self.ident, errors);
        }
    }

    fn validate_enum(&self, variants: &[Variant], errors: &mut Errors) {
        let way_out = "an enum runs the variant that it is; put the split on the struct that a variant holds";
        let splits = self.splits.iter().map(|split| split.original);
        misplaced_splits(splits, "an enum", way_out, errors);
        for variant in variants {
            variant.validate(self, errors);
        }
    }
}

impl Variant<'_> {
    fn validate(&self, input: &Input, errors: &mut Errors) {
        let ident = self.ident;
        let way_out = match input.derive {
            Derive::Parameters => {
                format!("put it on the variant's field: `{ident}(#[checkpoint(skip)] Type)`")
            }
            Derive::Checkpointable => "put it on the enum, or on the type that the variant holds".to_owned(),
        };
        misplaced(&self.attributes, "a variant", &way_out, errors);
        let way_out = "put it on the struct that the variant holds";
        misplaced_splits(self.splits.iter().copied(), "a variant", way_out, errors);
        self.validate_shape(input.derive.name(), errors);
        for field in &self.fields {
            field.validate(input.derive, errors);
            if input.derive == Derive::Checkpointable {
                self.validate_part(field, input, errors);
            }
        }
    }

    /// What the enum delegates to can run.
    fn validate_part(&self, field: &Field, input: &Input, errors: &mut Errors) {
        let way_out = format!("put it on the field that holds `{}`", input.ident);
        uncompressed(field, "on the field of a variant", &way_out, errors);
        let skip = attr::find(&field.attributes, attr::SKIP);
        if let Some(skip) = skip.filter(|_| !input.has(FORWARD)) {
            let ident = self.ident;
            errors.push(
                skip,
                format!(
                    "`skip` on the field of a variant leaves nothing to run for `{ident}`: remove it, or say how the enum runs with `#[checkpoint(forward = \"run\")]`"
                ),
            );
        }
    }

    fn validate_shape(&self, derive: &str, errors: &mut Errors) {
        let ident = self.ident;
        let rule = format!("each variant of an enum that derives `{derive}` holds exactly one unnamed field");
        let empty = format!(
            "{rule}, `{ident}` has none: write `{ident}(Type)`; `Type` can be a unit struct that derives `{derive}`"
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
    fn validate(&self, derive: Derive, errors: &mut Errors) {
        let place = match derive {
            Derive::Parameters => &FIELD,
            Derive::Checkpointable => &PART,
        };
        keys::check(&self.attributes, place, errors);
        if self.skipped() {
            uncompressed(self, "on a skipped field, which does not run", "remove one of the two", errors);
        }
        misplaced_splits(self.splits.iter().copied(), "a field", "put it on the struct", errors);
    }
}

/// Refuses a compressor of `field`: there it means nothing.
fn uncompressed(field: &Field, there: &str, way_out: &str, errors: &mut Errors) {
    if let Some(key) = attr::find(&field.attributes, COMPRESSOR) {
        errors.push(key, format!("`{}` means nothing {there}: {way_out}", written(key)));
    }
}

/// Refuses every attribute of `attributes`: on `place` it means nothing.
fn misplaced(attributes: &[Checkpoint], place: &str, way_out: &str, errors: &mut Errors) {
    for Checkpoint { original, .. } in attributes {
        errors.push(original, format!("`{}` means nothing on {place}: {way_out}", written(original)));
    }
}

/// Refuses every split of `splits`: on `place` it means nothing.
fn misplaced_splits<'a>(
    splits: impl Iterator<Item = &'a Attribute>,
    place: &str,
    way_out: &str,
    errors: &mut Errors,
) {
    for original in splits {
        errors.push(original, format!("`{}` means nothing on {place}: {way_out}", written(original)));
    }
}
