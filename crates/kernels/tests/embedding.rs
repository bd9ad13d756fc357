//! Gather and its backward, against candle's index_select and a loop.

use crate::oracle::{Lay, assert_close, ids, on_device, test_devices, tolerance, uniform};
use candle_core::{DType, Device, Result, Tensor};
use kernels::embedding;

test_devices!(
    embedding_gathers_rows,
    gradients_of_repeated_tokens_add_up,
    a_frequent_token_adds_up,
    an_unknown_token_is_refused_or_shows,
);

const LAYS: [Lay; 4] = [Lay::Plain, Lay::Offset, Lay::Gaps, Lay::Swapped];

fn embedding_gathers_rows(device: &Device) -> Result<()> {
    for (dtype, width) in [(DType::F64, 7), (DType::F32, 7), (DType::BF16, 7), (DType::BF16, 520)] {
        for lay in LAYS {
            let w = lay.of(&uniform(&[11, width], 1).to_dtype(dtype)?.to_device(device)?)?;
            let ids = lay.of(&ids(&[3, 5], 11, 2, device)?)?;
            let wanted = embedding::reference(&w, &ids)?;
            let made = on_device("embedding", device, dtype, || Ok(vec![embedding::forward(&w, &ids)?]))?;
            assert_close("embedding", &made[0], &wanted, 0.0)?;
        }
    }
    Ok(())
}

/// Holds `dw[ids] += dy` against a plain loop over tokens, in f64; dy of `dtype`, dw in no less than f32 on kernels.
fn check_backward(
    device: &Device,
    dtype: DType,
    vocab: usize,
    width: usize,
    lay: Lay,
    ids: &Tensor,
) -> Result<()> {
    let wide = if dtype == DType::BF16 { DType::F32 } else { dtype };
    let dw = uniform(&[vocab, width], 1).to_dtype(wide)?;
    let dy = uniform(&[ids.dims(), &[width]].concat(), 3).to_dtype(dtype)?;
    let mut table = dw.to_dtype(DType::F64)?.to_vec2::<f64>()?;
    let tokens = ids.flatten_all()?.to_vec1::<u32>()?;
    for (id, dy) in tokens.iter().zip(dy.to_dtype(DType::F64)?.reshape(((), width))?.to_vec2::<f64>()?) {
        if let Some(row) = table.get_mut(*id as usize) {
            row.iter_mut().zip(dy).for_each(|(w, d)| *w += d);
        }
    }
    let what =
        format!("dw of {tokens} tokens, {dtype:?}, {lay:?}, ({vocab}, {width})", tokens = tokens.len());
    let (ids, dy) = (lay.of(ids)?, lay.of(&dy.to_device(device)?)?);
    let made = on_device(&what, device, dtype, || {
        let dw = dw.to_device(device)?.copy()?;
        embedding::add_backward(&dw, &ids, &dy)?;
        Ok(vec![dw])
    })?;
    assert_close(&what, &made[0], &Tensor::new(table, &Device::Cpu)?, tolerance(wide))
}

fn gradients_of_repeated_tokens_add_up(device: &Device) -> Result<()> {
    for (dtype, vocab, rows, width) in [
        (DType::F32, 5, 64, 33),
        (DType::F64, 300, 41, 8),
        (DType::F16, 30, 20, 8),
        (DType::BF16, 5, 64, 33),
        (DType::BF16, 300, 41, 520),
        (DType::BF16, 40_000, 900, 2),
        (DType::BF16, 70_000, 2, 1),
        (DType::BF16, 1, 1, 3),
    ] {
        for lay in LAYS {
            let ids = ids(&[2, rows], vocab as u32, 2, device)?;
            check_backward(device, dtype, vocab, width, lay, &ids)?;
        }
    }
    Ok(())
}

fn a_frequent_token_adds_up(device: &Device) -> Result<()> {
    let check = |n: usize, vocab, width, often: &dyn Fn(usize) -> bool| {
        let others = ids(&[n], vocab, 2, &Device::Cpu)?.to_vec1::<u32>()?;
        let one = |(i, other)| if often(i) { 3 } else { other };
        let ids: Vec<u32> = others.into_iter().enumerate().map(one).collect();
        check_backward(device, DType::BF16, vocab as usize, width, Lay::Plain, &Tensor::new(ids, device)?)
    };
    // several blocks sort, in two passes, and its run is many chunks' work
    check(5003, 1000, 8, &|i| i % 3 == 0)?;
    // nothing else: more chunks than a block has threads to count them
    check(17_000, 7, 1, &|_| true)?;
    // more positions than blocks sort at once, in three passes, most tokens alone
    check(264_000, 200_000, 1, &|_| false)?;
    // runs that end with their chunk
    check(64 * 5, 4, 16, &|i| i >= 128)
}

fn an_unknown_token_is_refused_or_shows(device: &Device) -> Result<()> {
    if device.is_cpu() {
        let w = uniform(&[4, 2], 1);
        let error = embedding::forward(&w, &Tensor::new(&[1u32, 4], device)?).unwrap_err().to_string();
        assert!(error.contains("token id 4"), "{error}");
    }
    // a GPU is not waited for: the row is NaN, and no gradient comes back
    let ids = Tensor::new(&[1u32, 4, u32::MAX], device)?;
    let made = on_device("embedding", device, DType::BF16, || {
        let w = uniform(&[4, 2], 1).to_dtype(DType::BF16)?.to_device(device)?;
        Ok(vec![embedding::forward(&w, &ids)?])
    })?;
    let rows = made[0].to_dtype(DType::F32)?.to_vec2::<f32>()?;
    assert!(
        rows[0].iter().all(|x| x.is_finite()) && rows[1..].iter().flatten().all(|x| x.is_nan()),
        "{rows:?}"
    );
    check_backward(device, DType::BF16, 4, 2, Lay::Plain, &ids)
}
