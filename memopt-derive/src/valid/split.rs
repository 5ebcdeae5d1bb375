//! The rules of `#[spatial_split(...)]`: every field that is not skipped runs exactly once, and joins are whole.

use crate::ast::Field;
use crate::attr::written;
use crate::errors::Errors;
use crate::ops::Word;
use crate::similar::similar;
use crate::split::{name, Branch, Content, Join, Op, Split, Step};
use std::collections::BTreeSet;
use syn::{Ident, Member};

/// Adds every broken rule of `split`, on the struct `ident` with `fields`, to `errors`.
pub fn validate(split: &Split, fields: &[Field], ident: &Ident, errors: &mut Errors) {
    let whole = written(split.original);
    let way_out = "write `#[spatial_split(first, second)]` with the fields in the order in which they run";
    match &split.content {
        Content::Chain(steps) if steps.is_empty() => {
            errors.push(split.original, format!("`{whole}` has no step: {way_out}"));
        }
        Content::Missing => errors.push(split.original, format!("`{whole}` has no step: {way_out}")),
        Content::Value => {
            let problem = format!("`{whole}` has a value instead of steps in parentheses");
            errors.push(split.original, format!("{problem}: {way_out}"));
        }
        Content::Chain(steps) => {
            let mut check = Check { fields, ident, used: BTreeSet::new(), meant: BTreeSet::new(), errors };
            check.chain(steps);
            check.unused();
        }
    }
}

/// The state of the walk over the steps.
struct Check<'a> {
    fields: &'a [Field<'a>],
    ident: &'a Ident,
    /// Fields that are steps.
    used: BTreeSet<String>,
    /// Fields that a step with a fault may mean, so that they are not reported too.
    meant: BTreeSet<String>,
    errors: &'a mut Errors,
}

impl Check<'_> {
    fn chain(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Field(member) => self.field(member),
                Step::Join(join) => self.join(join),
                Step::Unreadable(unreadable) => {
                    self.errors.add(unreadable.error.clone());
                    self.meant.extend(unreadable.names.iter().cloned());
                }
            }
        }
    }

    fn field(&mut self, member: &Member) {
        let step = name(member);
        let Some(field) = self.fields.iter().find(|field| field.step == step) else {
            return self.unknown(member, &step);
        };
        if field.skipped() {
            let problem =
                format!("`{step}` runs in `#[spatial_split(...)]` and is marked `#[checkpoint(skip)]`");
            self.errors.push(member, format!("{problem}: remove one of them"));
        } else if self.used.contains(&step) {
            let rule = format!("duplicate `{step}` in `#[spatial_split(...)]`: each field runs once");
            self.errors.push(
                member,
                format!("{rule}, remove this one, or give the second layer a field of its own"),
            );
        }
        self.used.insert(step);
    }

    fn unknown(&mut self, member: &Member, step: &str) {
        let ident = self.ident;
        let names: Vec<&str> = self.fields.iter().map(|field| field.step.as_str()).collect();
        let way_out = match similar(step, &names) {
            Some(known) if matches!(member, Member::Named(_)) => {
                self.meant.insert(known.to_owned());
                format!("did you mean `{known}`?")
            }
            _ if names.is_empty() => "it has none".to_owned(),
            _ => format!("its fields are `{}`", names.join("`, `")),
        };
        let problem = format!("`{ident}` has no field `{step}`, which `#[spatial_split(...)]` names");
        self.errors.push(member, format!("{problem}: {way_out}"));
    }

    fn join(&mut self, join: &Join) {
        self.op(join);
        let branches = &join.branches;
        // Where something cannot be read, it may have been meant as more.
        let readable = !matches!(join.op, Op::Missing) && branches.iter().all(Branch::is_readable);
        if branches.len() < 2 && readable {
            let count = if branches.is_empty() { "no branch" } else { "one branch only" };
            let whole = written(&join.original);
            let way_out =
                "write `join(op; first, second)`; an `Option` that is `None` is a branch that changes nothing";
            self.errors.push(&join.original, format!("`{whole}` has {count}: {way_out}"));
        }
        for branch in branches {
            self.branch(branch);
        }
    }

    fn branch(&mut self, branch: &Branch) {
        if branch.steps.is_empty() {
            let rule = "empty branch in `join(...)`: a branch has one step or more";
            let way_out = "one that changes nothing is a field of type `Option<M>` that is `None`";
            self.errors.push(&branch.original, format!("{rule}; {way_out}"));
        }
        self.chain(&branch.steps);
    }

    fn op(&mut self, join: &Join) {
        let whole = written(&join.original);
        let known = format!("`{}`", Word::NAMES.join("`, `"));
        match &join.op {
            Op::Method(_) => {}
            Op::Missing => {
                let way_out =
                    format!("write `join(op; first, second)`, where `op` is {known} or `self.method`");
                self.errors.push(&join.original, format!("`{whole}` has no operation: {way_out}"));
            }
            Op::Unreadable(tokens) => {
                let problem = format!("`{}` in `{whole}` is no operation", written(tokens));
                self.errors.push(tokens, format!("{problem}: write {known} or `self.method`"));
            }
            Op::Word(word) => match (Word::from_ident(word), join.branches.get(2)) {
                (None, _) => self.unknown_word(word, &known),
                (Some(Word::Iand), Some(third)) => {
                    let rule = "`iand` is (1 - first) * second and joins two branches";
                    let way_out = "remove this one, or nest: `join(iand; a, join(iand; b, c))`";
                    self.errors.push(&third.original, format!("{rule}: {way_out}"));
                }
                _ => {}
            },
        }
    }

    fn unknown_word(&mut self, word: &Ident, known: &str) {
        let way_out = match similar(&word.to_string(), &Word::NAMES) {
            Some(known) => format!("did you mean `{known}`?"),
            None => format!("the operations are {known}, and a method of the model: `self.{word}`"),
        };
        self.errors.push(word, format!("unknown operation `{word}` in `join(...)`: {way_out}"));
    }

    /// Every field that neither runs nor is skipped.
    fn unused(&mut self) {
        for field in self.fields {
            let step = &field.step;
            if field.skipped() || self.used.contains(step) || self.meant.contains(step) {
                continue;
            }
            let problem =
                format!("`{step}` is neither in `#[spatial_split(...)]` nor marked `#[checkpoint(skip)]`");
            let message = format!("{problem}: name it where it runs, or mark it if it holds no parameters");
            match &field.member {
                Member::Named(ident) => self.errors.push(ident, message),
                Member::Unnamed(_) => self.errors.push(field.ty, message),
            }
        }
    }
}
