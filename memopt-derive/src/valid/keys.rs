//! The rules of `#[checkpoint(...)]`: which keys there are where, and what they take.

use crate::attr::{text, written, Checkpoint, Content, COMPRESSOR, FORWARD, SEGMENT, SKIP, TIME_CHUNKS};
use crate::compressor::Compressor;
use crate::errors::Errors;
use crate::similar::similar;
use syn::{Error, Ident, LitStr, Meta, Result};

/// Where an attribute stands.
pub struct Place {
    /// The keys that it can have there.
    keys: &'static [Key],
    /// What these are, for who writes another.
    known: &'static str,
    /// An attribute that is right there, for who writes none.
    example: &'static str,
    /// Where the keys belong that it cannot have there.
    elsewhere: &'static [(&'static str, &'static str)],
}

/// A key.
struct Key {
    name: &'static str,
    takes: Takes,
    /// Why a second one is too many.
    again: &'static str,
}

/// What a key takes.
enum Takes {
    /// `key`
    Nothing,
    /// `key = "text"`
    Text {
        /// One that is right.
        example: &'static str,
        /// What is wrong with a text.
        check: fn(&LitStr) -> Result<()>,
    },
}

const SKIP_KEY: Key = Key { name: SKIP, takes: Takes::Nothing, again: "the field is skipped already" };

const COMPRESSOR_KEY: Key = Key {
    name: COMPRESSOR,
    takes: Takes::Text {
        example: "compressor = \"bit\"",
        check: |text| Compressor::from_text(text).map(|_| ()),
    },
    again: "a field's input is kept by one compressor",
};

const SEGMENT_KEY: Key = Key { name: SEGMENT, takes: Takes::Nothing, again: "the type is a segment already" };

const TIME_CHUNKS_KEY: Key =
    Key { name: TIME_CHUNKS, takes: Takes::Nothing, again: "time chunks are demanded already" };

const FORWARD_KEY: Key = Key {
    name: FORWARD,
    takes: Takes::Text { example: "forward = \"run\"", check: check_method },
    again: "one method is the forward",
};

/// A field of a type that derives `Parameters`.
pub const FIELD: Place = Place {
    keys: &[SKIP_KEY],
    known: "a field has the key `skip` only: it holds no parameters",
    example: "`#[checkpoint(skip)]`",
    elsewhere: &[],
};

/// A field of a type that derives `Checkpointable`.
pub const PART: Place = Place {
    keys: &[SKIP_KEY, COMPRESSOR_KEY],
    known: "a field has the keys `skip` (it does not run and holds no parameters) and `compressor = \"...\"` (what keeps its input)",
    example: "`#[checkpoint(skip)]` or `#[checkpoint(compressor = \"bit\")]`",
    elsewhere: &[(SEGMENT, MODEL_PLACE), (TIME_CHUNKS, MODEL_PLACE), (FORWARD, MODEL_PLACE)],
};

/// A type that derives `Checkpointable`.
pub const MODEL: Place = Place {
    keys: &[SEGMENT_KEY, TIME_CHUNKS_KEY, FORWARD_KEY],
    known: "a type has the keys `segment` (it makes a good segment), `time_chunks` (it can be run in time chunks) and `forward = \"...\"` (its forward is this method)",
    example: "`#[checkpoint(segment)]`",
    elsewhere: &[(SKIP, PART_PLACE), (COMPRESSOR, PART_PLACE)],
};

const MODEL_PLACE: &str = "it is a key of the type: put it on the struct or the enum";
const PART_PLACE: &str = "it is a key of fields: put it on the field";

fn check_method(text: &LitStr) -> Result<()> {
    let value = text.value();
    let rule = "write the name of a method `fn(&self, x: Signal, context: &mut Context) -> Result<Signal>`";
    if text.parse::<Ident>().is_err() {
        let problem = format!("`{FORWARD} = \"{value}\"` is no name of a method: {rule}");
        return Err(Error::new(text.span(), problem));
    }
    if value == FORWARD {
        let problem = "`forward = \"forward\"` could be taken for the method of `Checkpointable`, which would call itself: give yours another name, like `run`";
        return Err(Error::new(text.span(), problem));
    }
    Ok(())
}

/// Checks the attributes of one place.
pub fn check(attributes: &[Checkpoint], place: &Place, errors: &mut Errors) {
    let mut seen = Vec::new();
    for Checkpoint { original, content } in attributes {
        let whole = written(original);
        let way_out = format!("write {}, or remove the attribute", place.example);
        match content {
            Content::Keys(keys) if !keys.is_empty() => {
                keys.iter().for_each(|key| place.check(key, &whole, &mut seen, errors));
            }
            Content::Keys(_) | Content::Missing => {
                errors.push(original, format!("`{whole}` has no key: {way_out}"));
            }
            Content::Value => {
                let problem = format!("`{whole}` has a value instead of keys in parentheses");
                errors.push(original, format!("{problem}: {way_out}"));
            }
            Content::Unreadable(error) => {
                let problem = format!("`{whole}` is not a list of keys, {error}");
                errors.add(Error::new(error.span(), format!("{problem}: {way_out}")));
            }
        }
    }
}

impl Place {
    /// Checks one key of the attribute `whole`; `seen` are those before it.
    fn check(&self, written_key: &Meta, whole: &str, seen: &mut Vec<&'static str>, errors: &mut Errors) {
        let path = written_key.path();
        let Some(key) = self.keys.iter().find(|key| path.is_ident(key.name)) else {
            let way_out = self.way_out(&written(path));
            return errors.push(path, format!("unknown key `{}` in `{whole}`: {way_out}", written(path)));
        };
        if let Err(error) = key.check(written_key) {
            errors.add(error);
        } else if seen.contains(&key.name) {
            let problem = format!("duplicate `{}` in `{whole}`: {}", key.name, key.again);
            errors.push(written_key, format!("{problem}, remove this one"));
        }
        seen.push(key.name);
    }

    /// What to do about the unknown key `name`.
    fn way_out(&self, name: &str) -> String {
        if let Some((_, there)) = self.elsewhere.iter().find(|(key, _)| *key == name) {
            return (*there).to_owned();
        }
        let names: Vec<&str> = self.keys.iter().map(|key| key.name).collect();
        match similar(name, &names) {
            Some(known) => format!("did you mean `{known}`?"),
            None => self.known.to_owned(),
        }
    }
}

impl Key {
    /// Checks the form in which it is written, and what it holds.
    fn check(&self, written_key: &Meta) -> Result<()> {
        let whole = written(written_key);
        match (&self.takes, written_key) {
            (Takes::Nothing, Meta::Path(_)) => Ok(()),
            (Takes::Nothing, _) => {
                let rule = "in `#[checkpoint(...)]` takes no value";
                let problem = format!("`{whole}` {rule}: write `#[checkpoint({})]`", self.name);
                Err(Error::new_spanned(written_key, problem))
            }
            (Takes::Text { example, check }, _) => match (text(written_key), written_key) {
                (Some(text), _) => check(text),
                (None, Meta::NameValue(pair)) => {
                    let rule = "in `#[checkpoint(...)]` takes a string in quotes";
                    Err(Error::new_spanned(&pair.value, format!("`{whole}` {rule}: write `{example}`")))
                }
                (None, _) => {
                    let rule = "in `#[checkpoint(...)]` takes a value after `=`";
                    Err(Error::new_spanned(written_key, format!("`{whole}` {rule}: write `{example}`")))
                }
            },
        }
    }
}
