//! Neurons without parameters, as layers of a model.

/// Makes a neuron with the methods `run(part, x, v, is_step)` and `charge()` and a field `firing` a layer without parameters.
macro_rules! fixed_neuron {
    ($neuron:ident) => {
        #[diagnostic::do_not_recommend]
        impl $crate::module::Checkpointable for $neuron {
            /// Each neuron works by itself.
            fn for_channels(
                &self,
                _: std::ops::Range<usize>,
            ) -> $crate::Result<Option<$crate::module::Part>> {
                Ok(Some($crate::module::Part::of(self)))
            }

            fn forward(
                &self,
                x: $crate::module::Signal,
                context: &mut $crate::module::Context,
            ) -> $crate::Result<$crate::module::Signal> {
                let context = &context.layer();
                let part = $crate::nn::neuron::name_of(context, stringify!($neuron));
                let v = context.initial_state()?;
                let (spikes, v) = self.run(&part, &x.into_dense(&part)?, v.as_ref(), false)?;
                context.set_final_state(v);
                Ok(spikes.into())
            }

            fn footprint(&self, x: &$crate::module::Incoming) -> Option<$crate::module::Footprint> {
                Some($crate::nn::neuron::footprint(x))
            }

            fn window_neuron(&self) -> Option<&dyn $crate::module::WindowNeuron> {
                Some(self)
            }

            fn is_time_chunkable(&self) -> bool {
                true
            }
        }

        #[diagnostic::do_not_recommend]
        impl $crate::module::WindowNeuron for $neuron {
            fn fire(
                &self,
                x: candle_core::CpuStorage,
                dims: &[usize],
                v0: Option<&candle_core::Tensor>,
            ) -> $crate::Result<(candle_core::CpuStorage, candle_core::Tensor)> {
                self.raw(dims, v0).fire(x)
            }

            fn back(
                &self,
                x: &candle_core::CpuStorage,
                dy: candle_core::CpuStorage,
                dims: &[usize],
                v0: Option<&candle_core::Tensor>,
                dv: Option<candle_core::CpuStorage>,
            ) -> $crate::Result<(candle_core::CpuStorage, Option<candle_core::CpuStorage>)> {
                self.raw(dims, v0).back(x, dy, dv)
            }
        }

        impl $neuron {
            fn raw<'a>(
                &self,
                dims: &'a [usize],
                v0: Option<&'a candle_core::Tensor>,
            ) -> $crate::nn::neuron::raw::RawWindow<'a> {
                let (part, charge) = (stringify!($neuron), self.charge());
                $crate::nn::neuron::raw::RawWindow { part, dims, v0, charge, firing: self.firing }
            }
        }

        /// No parameters.
        #[diagnostic::do_not_recommend]
        impl $crate::parameters::Parameters for $neuron {
            fn visit_parameters(&self, _: &mut $crate::parameters::Visitor<'_>) {}

            fn detached(&self) -> Self {
                self.clone()
            }
        }
    };
}
pub(super) use fixed_neuron;
