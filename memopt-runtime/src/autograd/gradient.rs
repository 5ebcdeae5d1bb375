//! A gradient on its way: an owned buffer where possible, so that it can be written over and moved without a copy.

use crate::{storage, Error};
use candle_core::{CpuStorage, DType, Device, Result, Shape, Tensor};

/// The gradient of one tensor.
///
/// Functions that own their buffers pass [`Gradient::new`] and take [`Gradient::into_storage`]: the buffer moves from one
/// backward closure to the next by value, never shared, so that it may be written over. Gradients from and to plain
/// Candle operations are tensors ([`From<Tensor>`], [`Gradient::into_tensor`]).
#[derive(Debug)]
pub struct Gradient(Kind);

#[derive(Debug)]
enum Kind {
    /// Nobody else has it.
    Owned { storage: CpuStorage, shape: Shape },
    /// Somebody else may have it.
    Shared(Tensor),
}

impl Kind {
    fn shape(&self) -> &Shape {
        match self {
            Kind::Owned { shape, .. } => shape,
            Kind::Shared(t) => t.shape(),
        }
    }
}

impl Gradient {
    /// A gradient in a row-major buffer of its own.
    ///
    /// The length is checked against the shape when the function takes it.
    pub fn new(storage: CpuStorage, shape: impl Into<Shape>) -> Self {
        Gradient(Kind::Owned { storage, shape: shape.into() })
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        self.0.shape()
    }

    /// Its dtype.
    pub fn dtype(&self) -> DType {
        match &self.0 {
            Kind::Owned { storage, .. } => storage::dtype(storage),
            Kind::Shared(t) => t.dtype(),
        }
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        match &self.0 {
            Kind::Owned { .. } => &Device::Cpu,
            Kind::Shared(t) => t.device(),
        }
    }

    /// As a tensor, without a copy; one that came from Candle may not be contiguous.
    pub fn into_tensor(self) -> Tensor {
        match self.0 {
            Kind::Owned { storage, shape } => {
                let len = storage::len(&storage);
                // Elements that do not fit the shape have none: whoever looks at it finds out, without a panic.
                let fits = storage::elements(&shape) == Some(len);
                storage::into_tensor(storage, if fits { shape } else { Shape::from(len) }, false)
            }
            Kind::Shared(t) => t,
        }
    }

    /// As a row-major buffer that nobody else has: moved if it was owned, else copied.
    ///
    /// # Errors
    /// If it is not on the CPU.
    pub fn into_storage(self) -> Result<CpuStorage> {
        match self.0 {
            Kind::Owned { storage, .. } => Ok(storage),
            Kind::Shared(t) => match storage::copy_of(&t)? {
                Some(storage) => Ok(storage),
                None => candle_core::bail!("a gradient's buffer can be taken on the CPU only"),
            },
        }
    }

    /// The same elements in another shape of as many; nothing is copied, unless a tensor is not contiguous.
    pub(super) fn reshaped(self, to: &Shape) -> Result<Gradient> {
        Ok(Gradient(match self.0 {
            same if same.shape() == to => same,
            Kind::Owned { storage, .. } => Kind::Owned { storage, shape: to.clone() },
            Kind::Shared(tensor) => Kind::Shared(tensor.reshape(to)?),
        }))
    }

    /// The tensor that somebody else may have too, unless the buffer is its own.
    pub(crate) fn shared(&self) -> Option<&Tensor> {
        match &self.0 {
            Kind::Owned { .. } => None,
            Kind::Shared(tensor) => Some(tensor),
        }
    }

    /// Whether it can be the gradient of a tensor of this shape, dtype and device; `name` says which in the error.
    pub(super) fn check(
        &self,
        function: &str,
        name: impl Fn() -> String,
        shape: &Shape,
        dtype: DType,
        device: &Device,
    ) -> crate::Result<()> {
        let function = function.to_owned();
        if let Kind::Owned { storage, shape } = &self.0 {
            let got = storage::len(storage);
            if storage::elements(shape) != Some(got) {
                return Err(Error::StorageLength { function, got, shape: shape.clone() });
            }
        }
        if self.shape() != shape {
            let (expected, got) = (shape.clone(), self.shape().clone());
            return Err(Error::GradientShape { function, tensor: name(), expected, got });
        }
        if self.dtype() != dtype {
            return Err(Error::GradientDType {
                function,
                tensor: name(),
                expected: dtype,
                got: self.dtype(),
            });
        }
        if !self.device().same_device(device) {
            return Err(Error::MixedDevices { function, tensor: format!("the gradient of {}", name()) });
        }
        Ok(())
    }

    /// The sum, in a buffer that one of the two owns where possible.
    pub(crate) fn plus(self, other: Gradient) -> Result<Gradient> {
        match (self.0, other.0) {
            (Kind::Owned { mut storage, shape }, other) => {
                let other = Gradient(other).into_tensor();
                if add_into(&mut storage, &other) {
                    return Ok(Gradient(Kind::Owned { storage, shape }));
                }
                (storage::into_tensor(storage, shape, false) + other).map(Gradient::from)
            }
            // Sums of two are the same either way round, but for which of two NaN they are.
            (Kind::Shared(t), Kind::Owned { storage, shape }) => {
                Gradient(Kind::Owned { storage, shape }).plus(Gradient(Kind::Shared(t)))
            }
            (Kind::Shared(a), Kind::Shared(b)) => (a + b).map(Gradient::from),
        }
    }
}

impl From<Tensor> for Gradient {
    /// The tensor without its graph: a gradient that Candle computed may track one, with all its activations.
    fn from(tensor: Tensor) -> Self {
        Gradient(Kind::Shared(tensor.detach()))
    }
}

/// `a += b`, element by element; false if the two do not match in dtype or length, or `b` is not contiguous.
fn add_into(a: &mut CpuStorage, b: &Tensor) -> bool {
    storage::with_cpu(b, |b, layout| {
        let Some(range) = storage::range(layout) else { return false };
        macro_rules! add {
            ($($variant:ident)*) => {
                match (a, b) {
                    $((CpuStorage::$variant(a), CpuStorage::$variant(b)) if a.len() == range.len() => {
                        a.iter_mut().zip(&b[range]).for_each(|(a, b)| *a += *b);
                        true
                    })*
                    _ => false,
                }
            };
        }
        add!(F32 F64 BF16 F16)
    })
    .unwrap_or(false)
}
