//! Paths and twins of the leaf, the containers and the layers.

use super::{parameters, Parameters};
use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{Activation, Conv1d, Conv2d, Embedding, Linear, Module};

fn variable(shape: &[usize]) -> Result<Tensor> {
    let count = shape.iter().product::<usize>() as u32;
    let values = (Tensor::arange(0, count, &Device::Cpu)?.to_dtype(DType::F32)? * 0.25)?.reshape(shape)?;
    Ok(Var::from_tensor(&values)?.into_inner())
}

fn paths<M: Parameters>(model: &M) -> Vec<String> {
    parameters(model).into_iter().map(|(path, _)| path).collect()
}

fn bits(tensor: &Tensor) -> Result<Vec<u32>> {
    Ok(tensor.flatten_all()?.to_vec1::<f32>()?.into_iter().map(f32::to_bits).collect())
}

/// A forward through the twin has the same bits and no graph.
fn assert_twin<M: Parameters + Module>(layer: &M, input: &Tensor) -> Result<()> {
    let twin = layer.detached();
    assert!(parameters(&twin).is_empty());
    let (ours, theirs) = (layer.forward(input)?, twin.forward(input)?);
    assert!(ours.track_op());
    assert!(!theirs.track_op());
    assert_eq!(bits(&ours)?, bits(&theirs)?);
    Ok(())
}

#[test]
fn a_variable_is_a_parameter_and_a_constant_is_not() -> Result<()> {
    let weight = variable(&[2])?;
    let found = parameters(&weight);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "");
    assert_eq!(found[0].1.id(), weight.id());
    assert!(parameters(&weight.detached()).is_empty());
    Ok(())
}

#[test]
fn a_tensor_computed_from_a_variable_is_a_parameter() -> Result<()> {
    assert_eq!(parameters(&(variable(&[2])? * 2.)?).len(), 1);
    Ok(())
}

#[test]
fn indices_are_steps_of_the_path_and_options_and_boxes_are_not() -> Result<()> {
    let w = variable(&[1])?;
    let model = (vec![w.clone(), w.clone()], [Some(w.clone()), None, Some(w.clone())], Box::new((w,)));
    assert_eq!(paths(&model), ["0.0", "0.1", "1.0", "1.2", "2.0"]);
    Ok(())
}

#[test]
fn the_path_is_the_parents_again_after_a_part() -> Result<()> {
    let w = variable(&[1])?;
    let model = vec![vec![vec![w.clone()]], vec![vec![w.clone(), w]]];
    assert_eq!(paths(&model), ["0.0.0", "1.0.0", "1.0.1"]);
    Ok(())
}

#[test]
fn tuples_go_up_to_eight() -> Result<()> {
    let w = variable(&[1])?;
    let c = || w.clone();
    assert_eq!(paths(&(c(), c(), c(), c(), c(), c(), c(), c())), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    Ok(())
}

#[test]
fn linear_has_weight_and_bias() -> Result<()> {
    let layer = Linear::new(variable(&[3, 2])?, Some(variable(&[3])?));
    assert_eq!(paths(&layer), ["weight", "bias"]);
    assert_eq!(paths(&Linear::new(variable(&[3, 2])?, None)), ["weight"]);
    assert_twin(&layer, &Tensor::new(&[[1f32, -2.]], &Device::Cpu)?)
}

#[test]
fn convolutions_keep_their_configuration() -> Result<()> {
    let config = candle_nn::Conv1dConfig { padding: 1, stride: 2, ..Default::default() };
    let layer = Conv1d::new(variable(&[2, 3, 3])?, Some(variable(&[2])?), config);
    assert_eq!(paths(&layer), ["weight", "bias"]);
    assert_eq!(layer.detached().config(), &config);
    assert_twin(&layer, &Tensor::ones((1, 3, 7), DType::F32, &Device::Cpu)?)?;

    let config = candle_nn::Conv2dConfig { padding: 1, groups: 2, ..Default::default() };
    let layer = Conv2d::new(variable(&[4, 1, 3, 3])?, None, config);
    assert_eq!(paths(&layer), ["weight"]);
    assert_eq!(layer.detached().config(), &config);
    assert_twin(&layer, &Tensor::ones((1, 2, 5, 5), DType::F32, &Device::Cpu)?)
}

#[test]
fn embedding_has_a_weight_and_activation_nothing() -> Result<()> {
    let layer = Embedding::new(variable(&[4, 3])?, 3);
    assert_eq!(paths(&layer), ["weight"]);
    assert_twin(&layer, &Tensor::new(&[1u32, 3, 0], &Device::Cpu)?)?;
    assert!(paths(&Activation::Elu(0.5)).is_empty());
    assert_eq!(Activation::Elu(0.5).detached(), Activation::Elu(0.5));
    Ok(())
}
