//! What `#[checkpoint(compressor = "...")]` names.

use crate::similar::similar;
use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Error, LitStr, Path, Result};

/// Each word, and the type of memopt that it stands for.
const WORDS: [(&str, &str); 5] =
    [("null", "Null"), ("bit", "Bit"), ("byte", "Byte"), ("sparse", "Sparse"), ("auto", "Auto")];

/// A compressor.
pub enum Compressor {
    /// One of memopt's, by the name of its type.
    Word(Ident),
    /// A user's type, to be made by `Default`.
    Type(Path),
}

impl Compressor {
    /// What `text` names: a word, or else a path.
    pub fn from_text(text: &LitStr) -> Result<Self> {
        let value = text.value();
        if let Some((_, name)) = WORDS.iter().find(|(word, _)| *word == value) {
            return Ok(Compressor::Word(Ident::new(name, text.span())));
        }
        let words = WORDS.map(|(word, _)| word);
        let known = format!("`{}`", words.join("`, `"));
        let rule =
            format!("the words are {known}; a type of your own is named by its path, as in `my::Compressor`");
        let path: Path = text.parse().map_err(|_| {
            let problem = format!("`compressor = \"{value}\"` is neither a word nor a path: {rule}");
            Error::new(text.span(), problem)
        })?;
        // A type starts with a capital letter.
        let word = path.get_ident().is_some_and(|_| value.starts_with(char::is_lowercase));
        if word {
            let way_out = match similar(&value, &words) {
                Some(known) => format!("did you mean `{known}`?"),
                None => rule,
            };
            return Err(Error::new(text.span(), format!("unknown compressor `{value}`: {way_out}")));
        }
        Ok(Compressor::Type(path))
    }

    /// The type.
    pub fn expand(&self) -> TokenStream {
        match self {
            Compressor::Word(name) => quote!(::memopt::__private::#name),
            Compressor::Type(path) => quote!(#path),
        }
    }
}
