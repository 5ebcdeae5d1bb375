//! Optimizers, clipping, the loss scale and schedules against PyTorch 2.15, whose numbers are in `fixtures/train`.
use super::nets::CPU;
use candle_core::backprop::GradStore;
use candle_core::{DType, Tensor, Var};
use memopt::train::{
    clip_by_global_norm, AdamW, AdamWConfig, CandleOptimizer, Gradients, NamedParameters, Optimizer, Scaler,
    ScalerConfig, Schedule, Sgd, SgdConfig,
};
use serde_json::Value;

fn fixture(file: &str) -> Value {
    let path = format!("{}/tests/fixtures/train/{file}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn tensor(values: &[f64], dtype: DType) -> Tensor {
    Tensor::new(values, CPU).unwrap().to_dtype(dtype).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().to_vec1().unwrap()
}

/// Variables `0`, `1`, ... of these values.
fn variables(initial: &Value, dtype: DType) -> (Vec<Var>, NamedParameters) {
    let initial = initial.as_array().unwrap();
    let of = |values: &Value| Var::from_tensor(&tensor(&numbers(values), dtype)).unwrap();
    let variables: Vec<Var> = initial.iter().map(of).collect();
    let named = variables.iter().enumerate().map(|(i, v)| (i.to_string(), v.as_tensor().clone()));
    let parameters = NamedParameters::new(named).unwrap();
    (variables, parameters)
}

/// A store with these gradients; `null`: none.
fn store(variables: &[Var], gradients: &Value) -> GradStore {
    let mut store = Tensor::zeros((), DType::F32, CPU).unwrap().backward().unwrap();
    for (variable, gradient) in variables.iter().zip(gradients.as_array().unwrap()) {
        if !gradient.is_null() {
            store.insert(variable, tensor(&numbers(gradient), variable.dtype()));
        }
    }
    store
}

#[track_caller]
fn assert_close(got: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (got, expected) in got.iter().zip(expected) {
        let scale = expected.abs().max(1.);
        assert!((got - expected).abs() <= tolerance * scale, "{what}: {got} is not {expected}");
    }
}

fn sgd_config(options: &Value) -> SgdConfig {
    let or_zero = |name: &str| options[name].as_f64().unwrap_or(0.);
    SgdConfig {
        learning_rate: number(&options["lr"]),
        momentum: or_zero("momentum"),
        dampening: or_zero("dampening"),
        nesterov: options["nesterov"].as_bool().unwrap_or(false),
        weight_decay: or_zero("weight_decay"),
    }
}

fn adamw_config(options: &Value) -> AdamWConfig {
    let default = AdamWConfig::new(number(&options["lr"]));
    let betas = options["betas"].as_array();
    AdamWConfig {
        beta1: betas.map_or(default.beta1, |betas| number(&betas[0])),
        beta2: betas.map_or(default.beta2, |betas| number(&betas[1])),
        eps: options["eps"].as_f64().unwrap_or(default.eps),
        weight_decay: options["weight_decay"].as_f64().unwrap_or(default.weight_decay),
        ..default
    }
}

#[test]
fn optimizers_make_pytorchs_steps() {
    let cases = fixture("optimizers");
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 28);
    for case in cases {
        let (dtype, tolerance) = match case["dtype"].as_str().unwrap() {
            "f32" => (DType::F32, 1e-6),
            _ => (DType::F64, 1e-14),
        };
        let (variables, parameters) = variables(&case["initial"], dtype);
        let options = &case["options"];
        let mut optimizer: Box<dyn Optimizer> = match case["kind"].as_str().unwrap() {
            "sgd" => Box::new(Sgd::new(&parameters, sgd_config(options)).unwrap()),
            _ => Box::new(AdamW::new(&parameters, adamw_config(options)).unwrap()),
        };
        let steps = case["gradients"].as_array().unwrap().iter().zip(case["weights"].as_array().unwrap());
        for (gradients, weights) in steps {
            let gradients = Gradients::new(&parameters, store(&variables, gradients)).unwrap();
            optimizer.step(&gradients).unwrap();
            for (variable, weights) in variables.iter().zip(weights.as_array().unwrap()) {
                assert_close(
                    &values(variable),
                    &numbers(weights),
                    tolerance,
                    &format!("{options} {dtype:?}"),
                );
            }
        }
    }
}

/// Candle's own SGD and AdamW, as wrapped, move as PyTorch's too: the gradients reach them unchanged.
#[test]
fn wrapped_optimizers_are_given_the_gradients() {
    let cases = fixture("optimizers");
    let is_plain = |case: &&Value| case["options"].as_object().unwrap().len() == 1 && case["dtype"] == "f64";
    let mut kinds = 0;
    for case in cases.as_array().unwrap().iter().filter(is_plain).take(2) {
        let (variables, parameters) = variables(&case["initial"], DType::F64);
        let rate = number(&case["options"]["lr"]);
        let mut optimizer: Box<dyn Optimizer> = match case["kind"].as_str().unwrap() {
            "sgd" => Box::new(CandleOptimizer::<candle_nn::SGD>::new(&parameters, rate).unwrap()),
            _ => {
                let config = candle_nn::ParamsAdamW { lr: rate, ..Default::default() };
                Box::new(CandleOptimizer::<candle_nn::AdamW>::new(&parameters, config).unwrap())
            }
        };
        assert_eq!(optimizer.learning_rate(), rate);
        let steps = case["gradients"].as_array().unwrap().iter().zip(case["weights"].as_array().unwrap());
        for (gradients, weights) in steps {
            optimizer.step(&Gradients::new(&parameters, store(&variables, gradients)).unwrap()).unwrap();
            for (variable, weights) in variables.iter().zip(weights.as_array().unwrap()) {
                assert_close(&values(variable), &numbers(weights), 1e-9, &format!("{optimizer:?}"));
            }
        }
        assert!(matches!(optimizer.state(), Err(memopt::Error::StateHidden { .. })));
        assert!(matches!(optimizer.load_state(&[]), Err(memopt::Error::StateHidden { .. })));
        kinds += 1;
    }
    assert_eq!(kinds, 2);
}

#[test]
fn clipping_by_norm_is_pytorchs() {
    for case in fixture("clip").as_array().unwrap() {
        let zeros: Value =
            case["gradients"].as_array().unwrap().iter().map(|g| vec![0.; numbers(g).len()]).collect();
        let (variables, parameters) = variables(&zeros, DType::F32);
        let mut gradients = Gradients::new(&parameters, store(&variables, &case["gradients"])).unwrap();
        let clipped = clip_by_global_norm(&mut gradients, number(&case["limit"])).unwrap();
        assert_close(&[clipped.norm], &[number(&case["norm"])], 1e-6, "norm");
        assert_eq!(clipped.clipped, number(&case["norm"]) > number(&case["limit"]));
        for (index, expected) in case["clipped"].as_array().unwrap().iter().enumerate() {
            let got = gradients.get(&index.to_string()).unwrap().unwrap();
            assert_close(&values(&got), &numbers(expected), 1e-6, "gradient");
        }
    }
}

#[test]
fn the_loss_scale_is_pytorchs() {
    let case = fixture("scaler");
    let interval = case["interval"].as_u64().unwrap();
    let mut scaler = Scaler::new(ScalerConfig { interval, ..Default::default() }).unwrap();
    for (finite, scale) in numbers(&case["finite"]).into_iter().zip(numbers(&case["scales"])) {
        scaler.update(finite > 0.);
        assert_eq!(scaler.scale(), scale);
    }
}

#[test]
fn schedules_are_pytorchs() {
    let cases = fixture("schedules");
    assert_eq!(cases.as_array().unwrap().len(), 6);
    for case in cases.as_array().unwrap() {
        let real = |name: &str| number(&case[name]);
        let whole = |name: &str| case[name].as_u64().unwrap();
        let schedule = match case["kind"].as_str().unwrap() {
            "constant" => Schedule::constant(real("rate")),
            "cosine" => Schedule::cosine(real("rate"), real("minimum"), whole("steps")),
            "step" => Schedule::step(real("rate"), whole("every"), real("factor")),
            "multi_step" => {
                let milestones: Vec<u64> =
                    case["milestones"].as_array().unwrap().iter().map(|m| m.as_u64().unwrap()).collect();
                Schedule::multi_step(real("rate"), milestones, real("factor"))
            }
            _ => Schedule::cosine(real("rate"), real("minimum"), whole("steps"))
                .and_then(|cosine| cosine.after_warm_up(whole("warm_up"), real("from"))),
        };
        let schedule = schedule.unwrap();
        for (step, expected) in numbers(&case["rates"]).into_iter().enumerate() {
            let got = schedule.at(step as u64);
            assert!(
                (got - expected).abs() <= 1e-12 * expected.abs().max(1e-3),
                "{schedule:?} {step}: {got} {expected}"
            );
        }
    }
}
