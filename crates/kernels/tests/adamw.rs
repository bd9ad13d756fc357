//! AdamW against the same formula in scalar f64 code, an element at a time.

use crate::oracle::{Lay, assert_close, exact, on_device, test_devices, uniform};
use candle_core::{DType, Device, Result, Tensor};
use kernels::adamw::{self, AdamW, Update};

test_devices!(
    ten_adamw_steps_match_scalar_code,
    the_adamw_kernel_matches_scalar_code_on_many_tensors_at_once,
);

/// AdamW of one element, in scalar code: weight and both moments.
#[derive(Clone, Copy)]
struct Element([f64; 3]);

impl Element {
    fn step(&mut self, g: f64, with: &AdamW) {
        let Element([w, m, v]) = self;
        *w -= with.lr * with.weight_decay * *w;
        *m = with.beta1 * *m + (1.0 - with.beta1) * g;
        *v = with.beta2 * *v + (1.0 - with.beta2) * g * g;
        let corrected = |x: f64, beta: f64| x / (1.0 - beta.powi(with.step as i32));
        *w -= with.lr * corrected(*m, with.beta1) / (corrected(*v, with.beta2).sqrt() + with.eps);
    }

    /// One for each element of these tensors.
    fn all(w: &Tensor, m: &Tensor, v: &Tensor) -> Result<Vec<Element>> {
        let [w, m, v] = [exact(w)?, exact(m)?, exact(v)?];
        Ok(w.into_iter().zip(m).zip(v).map(|((w, m), v)| Element([w, m, v])).collect())
    }
}

/// Weights and moments of some elements, as tensors like `like`.
fn states(elements: &[Element], like: &Tensor) -> Result<[Tensor; 3]> {
    let at = |i: usize| {
        let values: Vec<f64> = elements.iter().map(|e| e.0[i]).collect();
        Tensor::from_vec(values, like.dims(), &Device::Cpu)
    };
    Ok([at(0)?, at(1)?, at(2)?])
}

fn ten_adamw_steps_match_scalar_code(device: &Device) -> Result<()> {
    for (dtype, allowed) in [(DType::F32, 2e-6), (DType::F64, 1e-13)] {
        let shape = [37, 129];
        let w = uniform(&shape, 1).to_dtype(dtype)?.to_device(device)?;
        let (m, v) = (w.zeros_like()?, w.zeros_like()?);
        let mut expected = Element::all(&w, &m, &v)?;
        for step in 1..=10 {
            let with = AdamW { lr: 0.01, beta1: 0.8, beta2: 0.95, eps: 1e-10, weight_decay: 0.1, step };
            let g = uniform(&shape, 10 + u64::from(step)).to_dtype(dtype)?.to_device(device)?;
            for (state, g) in expected.iter_mut().zip(exact(&g)?) {
                state.step(g, &with);
            }
            let [w, m, v] = [&w, &m, &v].map(Tensor::clone);
            adamw::step(&[Update { w, g, m, v, copy: None, with }])?;
        }
        for (made, wanted) in [&w, &m, &v].into_iter().zip(states(&expected, &w)?) {
            assert_close("adamw", made, &wanted, allowed)?;
        }
    }
    Ok(())
}

fn the_adamw_kernel_matches_scalar_code_on_many_tensors_at_once(device: &Device) -> Result<()> {
    let (half, single) = (DType::BF16, DType::F32);
    // more tensors than one launch takes; odd sizes, some that several blocks share, views that start anywhere
    let mut kinds = vec![(5, half, half); 50];
    for n in [1, 37, 2100] {
        kinds.extend([(n, single, single), (n, half, single), (n, single, half), (n, single, single)]);
    }
    let make = |(i, &(n, state, gradient)): (usize, &(usize, DType, DType))| -> Result<Update> {
        let seed = 4 * i as u64;
        let lay = if i % 2 == 0 { Lay::Plain } else { Lay::Offset };
        let place = |t: Tensor, dtype| lay.of(&t.to_dtype(dtype)?.to_device(device)?);
        let step = 1 + i as u32;
        Ok(Update {
            w: place(uniform(&[n], seed), state)?,
            g: place(uniform(&[n], seed + 1), gradient)?,
            m: place(uniform(&[n], seed + 2), state)?,
            v: place(uniform(&[n], seed + 3).sqr()?, state)?,
            copy: (state == single).then(|| place(uniform(&[n], 0), half)).transpose()?,
            with: AdamW { lr: 0.1, beta1: 0.8, beta2: 0.9, eps: 1e-10, weight_decay: 0.1, step },
        })
    };
    let updates = || kinds.iter().enumerate().map(make).collect::<Result<Vec<Update>>>();
    let made = on_device("adamw", device, half, || {
        let updates = updates()?;
        adamw::step(&updates)?;
        Ok(updates.into_iter().flat_map(|u| [u.w, u.m, u.v].into_iter().chain(u.copy)).collect())
    })?;
    let mut made = made.into_iter();
    for u in updates()? {
        let mut expected = Element::all(&u.w, &u.m, &u.v)?;
        for (state, g) in expected.iter_mut().zip(exact(&u.g)?) {
            state.step(g, &u.with);
        }
        // once rounded to the state's type
        let allowed = if u.w.dtype() == half { 4e-3 } else { 1e-6 };
        let [w, m, v] = states(&expected, &u.w)?;
        for wanted in [&w, &m, &v] {
            assert_close("adamw kernel", &made.next().expect("three"), wanted, allowed)?;
        }
        if u.copy.is_some() {
            assert_close("adamw copy", &made.next().expect("a fourth"), &w, 4e-3)?;
        }
    }
    Ok(())
}
