//! Gather and its backward, against candle's index_select and a loop.

use crate::oracle::{Lay, assert_close, ids, test_devices, tolerance, uniform};
use candle_core::{DType, Device, Result, Tensor};
use kernels::embedding;

test_devices!(embedding_gathers_rows, gradients_of_repeated_tokens_add_up, an_unknown_token_is_refused);

fn embedding_gathers_rows(device: &Device) -> Result<()> {
    for lay in [Lay::Plain, Lay::Offset, Lay::Gaps, Lay::Swapped] {
        let w = lay.of(&uniform(&[11, 7], 1).to_device(device)?)?;
        let ids = lay.of(&ids(&[3, 5], 11, 2, device)?)?;
        let wanted = embedding::reference(&w, &ids)?;
        assert_close("embedding", &embedding::forward(&w, &ids)?, &wanted, 0.0)?;
    }
    Ok(())
}

fn gradients_of_repeated_tokens_add_up(device: &Device) -> Result<()> {
    for (dtype, vocab, rows, width) in
        [(DType::F32, 5, 64, 33), (DType::F64, 300, 41, 8), (DType::F16, 30, 20, 8)]
    {
        for lay in [Lay::Plain, Lay::Offset, Lay::Gaps, Lay::Swapped] {
            let dw = uniform(&[vocab, width], 1).to_dtype(dtype)?.to_device(device)?;
            let ids = ids(&[2, rows], vocab as u32, 2, device)?;
            let dy = uniform(&[2, rows, width], 3).to_dtype(dtype)?.to_device(device)?;
            // the oracle: a plain loop over tokens, in f64
            let mut table = dw.to_dtype(DType::F64)?.to_vec2::<f64>()?;
            let tokens = ids.flatten_all()?.to_vec1::<u32>()?;
            for (id, dy) in tokens.iter().zip(dy.to_dtype(DType::F64)?.flatten_to(1)?.to_vec2::<f64>()?) {
                table[*id as usize].iter_mut().zip(dy).for_each(|(w, d)| *w += d);
            }
            embedding::add_backward(&dw, &lay.of(&ids)?, &lay.of(&dy)?)?;
            assert_close("dw", &dw, &Tensor::new(table, &Device::Cpu)?, tolerance(dtype))?;
        }
    }
    Ok(())
}

fn an_unknown_token_is_refused(device: &Device) -> Result<()> {
    if device.is_cpu() {
        let w = uniform(&[4, 2], 1);
        let error = embedding::forward(&w, &Tensor::new(&[1u32, 4], device)?).unwrap_err().to_string();
        assert!(error.contains("token id 4"), "{error}");
    }
    Ok(())
}
