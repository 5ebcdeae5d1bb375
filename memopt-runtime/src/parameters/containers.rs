//! The tensor and the containers of the standard library.

use super::{Parameters, Visitor};
use candle_core::Tensor;

/// The leaf of every path. Untracked tensors are constants and are not visited.
impl Parameters for Tensor {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        visitor.tensor(self);
    }

    fn detached(&self) -> Self {
        self.detach()
    }
}

/// Paths: `0`, `1`, ...
impl<M: Parameters> Parameters for Vec<M> {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        for (index, part) in self.iter().enumerate() {
            visitor.index(index, part);
        }
    }

    fn detached(&self) -> Self {
        self.iter().map(M::detached).collect()
    }
}

/// Paths: `0`, `1`, ...
impl<M: Parameters, const N: usize> Parameters for [M; N] {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        for (index, part) in self.iter().enumerate() {
            visitor.index(index, part);
        }
    }

    fn detached(&self) -> Self {
        self.each_ref().map(M::detached)
    }
}

/// Adds nothing to the path; `None` holds no parameters.
impl<M: Parameters> Parameters for Option<M> {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        if let Some(part) = self {
            part.visit_parameters(visitor);
        }
    }

    fn detached(&self) -> Self {
        self.as_ref().map(M::detached)
    }
}

/// Adds nothing to the path.
impl<M: Parameters> Parameters for Box<M> {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        M::visit_parameters(self, visitor);
    }

    fn detached(&self) -> Self {
        Box::new(M::detached(self))
    }
}

macro_rules! tuple {
    ($($name:ident $index:tt)+) => {
        /// Paths: `0`, `1`, ...
        #[diagnostic::do_not_recommend]
        impl<$($name: Parameters),+> Parameters for ($($name,)+) {
            fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
                $(visitor.index($index, &self.$index);)+
            }

            fn detached(&self) -> Self {
                ($(self.$index.detached(),)+)
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0 B 1);
tuple!(A 0 B 1 C 2);
tuple!(A 0 B 1 C 2 D 3);
tuple!(A 0 B 1 C 2 D 3 E 4);
tuple!(A 0 B 1 C 2 D 3 E 4 F 5);
tuple!(A 0 B 1 C 2 D 3 E 4 F 5 G 6);
tuple!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7);
