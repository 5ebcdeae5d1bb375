//! Networks that people train, as derived structs.

mod cifar_dvs_vgg;

pub use cifar_dvs_vgg::{CifarDvsVgg, ProjBn, VggBlock};
