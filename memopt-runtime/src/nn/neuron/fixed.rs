//! Neurons without parameters, as layers of a model.

/// Makes a neuron with a method `run(part, x, v, is_step)` a layer without parameters.
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

            fn is_time_chunkable(&self) -> bool {
                true
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
