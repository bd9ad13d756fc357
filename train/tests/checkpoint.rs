//! A stored model is the model.

use candle_core::Tensor;
use prepare::Checkpoint;

use crate::train::model::Gpt;
use crate::{CPU, ids, random_model, rng, small};

#[test]
fn a_checkpoint_on_disk_gives_the_same_logits() {
    let mut rng = rng(1);
    let model = random_model(small(2), &mut rng);
    let dir = tempfile::tempdir().unwrap();
    model.checkpoint().unwrap().write(dir.path()).unwrap();
    let again = Gpt::from_checkpoint(&Checkpoint::read(dir.path(), &CPU).unwrap(), &CPU).unwrap();
    assert_eq!(again.config, model.config);
    let x = ids(&mut rng, 2, 14, 50);
    let values = |m: &Gpt| m.forward(&x).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(values(&again), values(&model));
}

#[test]
fn a_checkpoint_of_another_shape_is_refused_by_name() {
    let mut rng = rng(2);
    let model = random_model(small(2), &mut rng);
    let mut checkpoint = model.checkpoint().unwrap();
    let narrow = Tensor::zeros((50, 3), candle_core::DType::F32, &CPU).unwrap();
    checkpoint.tensors.insert("head".into(), narrow);
    let error = Gpt::from_checkpoint(&checkpoint, &CPU).err().unwrap().to_string();
    assert!(error.contains("head") && error.contains("[50, 3]"), "{error}");
    checkpoint.tensors.remove("head");
    let error = Gpt::from_checkpoint(&checkpoint, &CPU).err().unwrap().to_string();
    assert!(error.contains("head"), "{error}");
}
