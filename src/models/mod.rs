//! Reference networks.

mod cifar_dvs_vgg;
mod residual_net;

pub use cifar_dvs_vgg::{CifarDvsVgg, ProjBn, VggBlock};
pub use residual_net::{ResidualNet, SewBlock, SpikingConv};
