//! How gradients move, add up, and are missed.

use candle_core::{DType, Device, Result, Tensor, Var};
use tape::{Node, Param, Tape, check};

use crate::{normal, param};

fn grad(p: &Param) -> Vec<f64> {
    p.grad().unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn a_value_used_many_times_gets_the_sum_of_its_gradients() {
    // oracle: candle's autograd on the same expression
    let w = param("w", &[4], 1);
    let t = Tape::new();
    let x = t.param(&w);
    let shared = (&x + &x).unwrap(); // one buffer handed to both inputs
    let y = (&(&shared * &x).unwrap() + &(&shared + &shared.tanh().unwrap()).unwrap()).unwrap();
    (&y - &shared).unwrap().sum_all().unwrap().backward().unwrap();

    let v = Var::from_tensor(&w.master()).unwrap();
    let s = (v.as_tensor() + v.as_tensor()).unwrap();
    let z = ((&s * v.as_tensor()).unwrap() + (&s + s.tanh().unwrap()).unwrap()).unwrap();
    let store = (z - s).unwrap().sum_all().unwrap().backward().unwrap();
    let expected: Vec<f64> = store.get(&v).unwrap().to_vec1().unwrap();
    for (a, b) in grad(&w).iter().zip(expected) {
        assert!((a - b).abs() < 1e-12, "{a} {b}");
    }
}

#[test]
fn adding_in_place_never_changes_a_gradient_someone_else_reads() {
    // the residual pattern: one gradient goes to both sides of a sum, then each side gets more
    let (a, b) = (param("a", &[5], 1), param("b", &[5], 2));
    check::gradients(&[&a, &b], 1e-7, |t| {
        let (x, y) = (t.param(&a), t.param(&b));
        let mut sum = (&x + &y)?;
        for _ in 0..3 {
            sum = (&sum + &sum.tanh()?)?;
            sum = (&sum.reshape((5, 1))?.reshape(5)? + &(&x * 0.5)?)?;
        }
        (&sum * &y)?.sum_all()
    })
    .unwrap();
}

#[test]
fn gradients_accumulate_until_they_are_zeroed() {
    let w = param("w", &[3], 1);
    let step = || -> Result<()> { (&Tape::new().param(&w) * 2.0)?.sum_all()?.backward() };
    step().unwrap();
    step().unwrap();
    assert_eq!(grad(&w), [4.0; 3]);
    w.zero_grad();
    assert!(w.grad().is_none());
    step().unwrap();
    assert_eq!(grad(&w), [2.0; 3]);
}

#[test]
fn linear_accumulates_over_micro_steps_like_one_large_batch() {
    // oracle: the same product over all rows at once
    let w = param("w", &[5, 4], 1);
    let x = normal(&[6, 4], 2).unwrap();
    let loss =
        |rows: Tensor| -> Result<()> { Tape::new().constant(rows).linear(&w)?.sqr()?.sum_all()?.backward() };
    loss(x.clone()).unwrap();
    let whole = grad(&w);
    w.zero_grad();
    for i in 0..3 {
        loss(x.narrow(0, 2 * i, 2).unwrap()).unwrap();
    }
    for (a, b) in grad(&w).iter().zip(whole) {
        assert!((a - b).abs() < 1e-10, "{a} {b}");
    }
}

#[test]
fn a_parameter_left_out_is_named() {
    let (a, b, c) = (param("wte", &[3], 1), param("unused_gate", &[3], 2), param("cut_off", &[3], 3));
    let t = Tape::new();
    let dead_end = t.param(&c).detach();
    (&t.param(&a) + &dead_end).unwrap().sum_all().unwrap().backward().unwrap();
    let error = check::every_gradient([&a, &b, &c]).unwrap_err().to_string();
    assert!(error.contains("unused_gate, cut_off") && !error.contains("wte"), "{error}");
}

#[test]
fn nothing_is_recorded_without_grad() {
    let w = param("w", &[3], 1);
    let t = Tape::no_grad();
    let y = (&t.param(&w) * 2.0).unwrap().sum_all().unwrap();
    assert!(!y.needs_grad());
    let error = y.backward().unwrap_err().to_string();
    assert!(error.contains("no_grad"), "{error}");
}

#[test]
fn an_activation_is_freed_when_backward_has_passed_it() {
    use std::cell::RefCell;
    use std::rc::{Rc, Weak};
    // oracle: a weak reference to what each backward closure holds
    let w = param("w", &[3], 1);
    let t = Tape::new();
    let alive: Rc<RefCell<Vec<usize>>> = Rc::default();
    let mut kept: Vec<Weak<()>> = Vec::new();
    let mut x = t.param(&w);
    for i in 0..4 {
        let held = Rc::new(());
        kept.push(Rc::downgrade(&held));
        let (alive, watched) = (alive.clone(), kept.clone());
        let value = x.value().clone();
        let y = t.record("probe", &[&x], value, move |g| {
            let _held = &held;
            let _ = i;
            alive.borrow_mut().push(watched.iter().filter(|w| w.upgrade().is_some()).count());
            Ok(vec![Some(g.clone())])
        });
        x = y.unwrap();
    }
    let loss = x.sum_all().unwrap();
    loss.backward().unwrap();
    // the last closure sees all four, the first sees only its own
    assert_eq!(*alive.borrow(), [4, 3, 2, 1]);
}

#[test]
fn nodes_of_two_tapes_do_not_mix() {
    let w = param("w", &[3], 1);
    let (one, other) = (Tape::new().param(&w), Tape::new().param(&w));
    let error = (&one + &other).unwrap_err().to_string();
    assert!(error.contains("different tapes"), "{error}");
}

#[test]
fn a_tape_serves_one_backward() {
    let w = param("w", &[3], 1);
    let t = Tape::new();
    let x = (&t.param(&w) * 2.0).unwrap();
    let (loss, other) = (x.sum_all().unwrap(), x.mean_all().unwrap());
    loss.backward().unwrap();
    for late in [other.backward(), (&x * 3.0).map(drop)] {
        let error = late.unwrap_err().to_string();
        assert!(error.contains("new `Tape`"), "{error}");
    }
    assert_eq!(grad(&w), [2.0; 3]);
}

#[test]
fn a_backward_of_the_wrong_shape_or_count_names_its_operation() {
    let w = param("w", &[3], 1);
    let backward = |grads: Vec<Option<Tensor>>| {
        let t = Tape::new();
        let x = t.param(&w);
        let y = t.record("mine", &[&x], x.value().clone(), move |_| Ok(grads)).unwrap();
        y.sum_all().unwrap().backward().unwrap_err().to_string()
    };
    let error = backward(vec![Some(normal(&[2], 1).unwrap())]);
    assert!(error.contains("`mine`") && error.contains("[2]") && error.contains("[3]"), "{error}");
    let error = backward(vec![None, None]);
    assert!(error.contains("`mine` returned 2 gradients for 1 inputs"), "{error}");
}

#[test]
fn only_a_scalar_has_a_backward() {
    let w = param("w", &[3], 1);
    let error = Tape::new().param(&w).backward().unwrap_err().to_string();
    assert!(error.contains("[3]") && error.contains("mean_all"), "{error}");
}

#[test]
fn a_bf16_parameter_keeps_its_master_and_its_gradient_in_f32() {
    let value = Tensor::new(&[1.0f32 + 1.0 / 1024.0, 2.0], &Device::Cpu).unwrap();
    let w = Param::with_compute("w", value, DType::BF16).unwrap();
    let y: Node = (&Tape::new().param(&w) * 3.0).unwrap();
    assert_eq!(y.dtype(), DType::BF16);
    y.sum_all().unwrap().backward().unwrap();
    assert_eq!(w.grad().unwrap().to_vec1::<f32>().unwrap(), [3.0, 3.0]);
    assert_eq!(w.master().to_vec1::<f32>().unwrap()[0], 1.0 + 1.0 / 1024.0);
    w.set(&(w.master() + 1.0).unwrap()).unwrap();
    assert_eq!(w.value().to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap(), [2.0, 3.0]);
    let error = w.set(&Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap()).unwrap_err().to_string();
    assert!(error.contains("parameter `w`"), "{error}");
}
