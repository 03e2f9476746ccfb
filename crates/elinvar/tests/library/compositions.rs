//! Operators that are several of the library's.

use std::{collections::BTreeMap, num::NonZeroUsize};

use elinvar::{Adam, DType, Executor, LossReduction, Momentum, Tensor};

fn cpu() -> Executor {
    Executor::new_cpu(NonZeroUsize::MIN).unwrap()
}

/// Small whole numbers, whose sums are exact in every type.
fn made(executor: &Executor, dtype: DType, dims: &[usize], seed: usize) -> Tensor {
    let values: Vec<f32> = (0..dims.iter().product()).map(|i: usize| ((i * 7 + seed * 5) % 5) as f32 - 2.0).collect();
    executor.tensor(dims, &values).unwrap().cast(dtype).unwrap()
}

/// The definition: for each value of all letters the product of the elements, added to the element of the result.
fn naive(terms: &[&str], operands: &[Tensor], result: &str) -> Vec<f32> {
    let mut extents = BTreeMap::<char, usize>::new();
    for (letter, &extent) in terms.iter().zip(operands).flat_map(|(term, x)| term.chars().zip(x.shape().iter())) {
        let known = extents.entry(letter).or_insert(1);
        *known = extent.max(*known);
    }
    let values: Vec<_> = operands.iter().map(|x| x.cast(DType::F32).unwrap().to_vec::<f32>().unwrap()).collect();
    let count = |term: &str| term.chars().map(|letter| extents[&letter]).product::<usize>();
    let mut sums = vec![0.0; count(result)];
    for index in 0..extents.values().product::<usize>() {
        let mut rest = index;
        let at: BTreeMap<_, _> = extents.iter().map(|(&letter, &extent)| (letter, (rest % extent, rest /= extent).0)).collect();
        let place = |term: &str, dims: &[usize]| {
            let steps = term.chars().zip(dims);
            steps.fold(0, |place, (letter, &extent)| place * extent + if extent == 1 { 0 } else { at[&letter] })
        };
        let product: f32 = terms.iter().zip(operands).zip(&values).map(|((term, x), values)| values[place(term, x.shape())]).product();
        let dims: Vec<_> = result.chars().map(|letter| extents[&letter]).collect();
        sums[place(result, &dims)] += product;
    }
    sums
}

#[test]
fn einstein_sums_are_those_of_the_definition() {
    let executor = cpu();
    // The equation, the same without ellipses, and the shapes.
    let cases: [(&str, &str, &[&[usize]]); 13] = [
        ("ij,jk->ik", "ij,jk->ik", &[&[2, 3], &[3, 4]]),
        ("ij , jk", "ij,jk->ik", &[&[2, 3], &[3, 4]]),
        ("kj,ij->ki", "kj,ij->ki", &[&[2, 3], &[4, 3]]),
        ("ji", "ji->ij", &[&[2, 3]]),
        ("ii->i", "ii->i", &[&[3, 3]]),
        ("iji->j", "iji->j", &[&[3, 2, 3]]),
        ("...ij,...jk->...ik", "abij,bjk->abik", &[&[2, 3, 2, 4], &[3, 4, 5]]),
        ("...ij,...jk", "abij,abjk->abik", &[&[2, 1, 2, 4], &[1, 3, 4, 5]]),
        ("a,b,c->cab", "a,b,c->cab", &[&[2], &[3], &[4]]),
        ("i,i->", "i,i->", &[&[5], &[5]]),
        ("ai,bi,ci->abc", "ai,bi,ci->abc", &[&[2, 4], &[3, 4], &[2, 4]]),
        ("abc,c->b", "abc,c->b", &[&[2, 3, 4], &[4]]),
        ("->", "->", &[&[]]),
    ];
    for dtype in [DType::F32, DType::I32] {
        for (equation, definition, shapes) in cases {
            let operands: Vec<_> = shapes.iter().zip(0..).map(|(dims, seed)| made(&executor, dtype, dims, seed)).collect();
            let (terms, result) = definition.split_once("->").unwrap();
            let found = Tensor::einsum(equation, &operands.iter().collect::<Vec<_>>()).unwrap();
            let expected = naive(&terms.split(',').collect::<Vec<_>>(), &operands, result);
            assert_eq!(found.dtype(), dtype);
            assert_eq!(found.cast(DType::F32).unwrap().to_vec::<f32>().unwrap(), expected, "{equation} of {dtype}");
        }
    }
}

#[test]
fn equations_that_do_not_fit_are_errors() {
    let executor = cpu();
    let (x, y) = (made(&executor, DType::F32, &[2, 3], 0), made(&executor, DType::F32, &[4], 1));
    for (equation, operands, why) in [
        ("ij,jk->ik", vec![&x], "2 terms and 1 operands"),
        ("ijk->ij", vec![&x], "'ijk' is no term for shape [2, 3]"),
        ("i->i", vec![&x], "'i' is no term for shape [2, 3]"),
        ("i1->i", vec![&x], "'i1' is no term"),
        ("...i...j->i", vec![&x], "is no term"),
        ("ij->ik", vec![&x], "axis 1 of the result is in no term"),
        ("ij->ii", vec![&x], "axis 1 of the result is in no term, or twice"),
        ("ij->i?", vec![&x], "'i?' is no result"),
        ("ii->i", vec![&x], "extents 2 and 3"),
        ("ij,j->i", vec![&x, &y], "extents 3 and 4"),
    ] {
        let message = Tensor::einsum(equation, &operands).unwrap_err().to_string();
        assert!(message.contains(&format!("einsum '{equation}': ")) && message.contains(why), "{message}");
    }
}

#[test]
fn norms_of_narrow_numbers_are_rounded_once() {
    let executor = cpu();
    let x = executor.randn(&[2, 6, 5], 1).unwrap();
    let (weight, bias) = (executor.randn(&[6], 2).unwrap(), executor.randn(&[6], 3).unwrap());
    for dtype in [DType::F16, DType::BF16] {
        let narrow = x.cast(dtype).unwrap();
        type Norm = fn(&Tensor, &Tensor, &Tensor) -> elinvar::Result<Tensor>;
        let norms: [Norm; 3] = [
            |x, weight, bias| x.group_norm(3, Some(weight), Some(bias), 1e-5),
            |x, weight, _| x.instance_norm(Some(weight), None, 1e-5),
            |x, _, _| x.normalize(2, 1, 1e-12),
        ];
        for norm in norms {
            let wide = norm(&narrow.cast(DType::F32).unwrap(), &weight, &bias).unwrap();
            let found = norm(&narrow, &weight, &bias).unwrap();
            assert_eq!(found.to_bytes().unwrap(), wide.cast(dtype).unwrap().to_bytes().unwrap());
        }
    }
}

#[test]
fn norms_and_losses_that_do_not_fit_are_errors() {
    let executor = cpu();
    let (x, short) = (made(&executor, DType::F32, &[2, 6, 5], 0), made(&executor, DType::F32, &[5], 1));
    let targets = executor.zeros(DType::I32, &[2, 5]).unwrap();
    let loss = |targets, weight| x.nll_loss(targets, weight, None, LossReduction::Sum);
    for (result, why) in [
        (short.group_norm(1, None, None, 0.0), "x has shape [5]: expected [batch, channels, …]"),
        (x.group_norm(4, None, None, 0.0), "6 channels do not divide into 4 groups"),
        (x.group_norm(0, None, None, 0.0), "into 0 groups"),
        (x.instance_norm(Some(&short), None, 0.0), "weight has shape [5], x has shape [2, 6, 5]: expected [6]"),
        (x.normalize(3, -1, 0.0), "p = 3"),
        (targets.one_hot(3, -1, &short), "values have shape [5]: expected [2]"),
        (targets.one_hot(3, 3, &made(&executor, DType::F32, &[2], 0)), "axis 3"),
        (loss(&short, None), "targets have shape [5]"),
        (loss(&targets, Some(&short)), "weight has shape [5]: expected [6]"),
    ] {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(why) && !message.contains('\n'), "{message}");
    }
}

#[test]
fn targets_that_are_no_classes_are_reported_unless_they_are_ignored() {
    let executor = cpu();
    let x = made(&executor, DType::F32, &[2, 3], 0);
    let losses = [Tensor::nll_loss, Tensor::cross_entropy_loss];
    for (target, loss) in [-1i32, 3].iter().flat_map(|&target| losses.map(|loss| (target, loss))) {
        let targets = executor.tensor(&[2], &[target, 1]).unwrap();
        let read = |ignore_index| loss(&x, &targets, None, ignore_index, LossReduction::Sum).and_then(|y| y.item::<f32>());
        assert!(read(None).is_err(), "{target}");
        assert!(read(Some(target as isize)).is_ok(), "{target}");
    }
    let ignored = executor.tensor(&[2], &[7i32, 7]).unwrap();
    assert!(x.nll_loss(&ignored, None, Some(7), LossReduction::Mean).unwrap().item::<f32>().unwrap().is_nan());
}

#[test]
fn a_recorded_step_of_an_optimiser_is_few_launches() {
    let executor = cpu();
    let [x, gradient, mean, squares] = [0, 1, 2, 3].map(|seed| executor.rand(&[33], seed).unwrap());
    for (weight_decay, launches) in [(0.0, [1, 1]), (0.1, [2, 2])] {
        let adam = Adam { weight_decay, decay_after: 0.01, ..Adam::default() };
        let momentum = Momentum { momentum: 0.9, scale: 0.5, weight_decay, nesterov: true };
        let step = |x: &Tensor| -> elinvar::Result<Vec<Tensor>> { Ok(x.adam(&gradient, [&mean, &squares], 0.1, 2, &adam)?.into()) };
        let other = |x: &Tensor| -> elinvar::Result<Vec<Tensor>> { Ok(x.momentum(&gradient, &mean, 0.1, 2, &momentum)?.into()) };
        type Step<'a> = &'a dyn Fn(&Tensor) -> elinvar::Result<Vec<Tensor>>;
        let steps: [Step<'_>; 2] = [&step, &other];
        let found = steps.map(|step| {
            let (recording, results) = executor.record(|recorded| step(&x.on(recorded)?)).unwrap();
            executor.replay(&recording).unwrap().wait().unwrap();
            let bytes = |tensors: Vec<Tensor>| tensors.iter().map(|tensor| tensor.to_bytes().unwrap()).collect::<Vec<_>>();
            assert_eq!(bytes(results), bytes(step(&x).unwrap()));
            recording.len()
        });
        assert_eq!(found, launches);
    }
}

#[test]
fn compositions_are_recorded_where_one_operand_is() {
    let executor = cpu();
    let (x, other) = (executor.randn(&[2, 4], 1).unwrap(), executor.randn(&[4], 2).unwrap());
    let targets = executor.tensor(&[2], &[1i32, 3]).unwrap();
    type Composition<'a> = &'a dyn Fn([&Tensor; 3]) -> elinvar::Result<Tensor>;
    // How many of the operands each takes.
    let compositions: [(usize, Composition<'_>); 4] = [
        (2, &|[x, other, _]| x.group_norm(2, Some(other), Some(other), 1e-5)),
        (3, &|[x, other, targets]| x.cross_entropy_loss(targets, Some(other), Some(0), LossReduction::Mean)),
        (3, &|[x, other, targets]| x.nll_loss(targets, Some(other), None, LossReduction::Sum)),
        (2, &|[x, other, _]| Tensor::einsum("ij,j->i", &[x, other])),
    ];
    for (composition, at) in compositions.iter().flat_map(|(count, composition)| (0..*count).map(move |at| (composition, at))) {
        let operands = [&x, &other, &targets];
        let result = executor.record(|recorded| {
            let moved = operands[at].on(recorded)?;
            let mut given = operands;
            given[at] = &moved;
            composition(given)
        });
        let (recording, y) = result.unwrap();
        x.write(&[0.5f32, -1.0, 2.0, 0.25, -3.0, 1.5, 0.0, 1.0]).unwrap();
        other.write(&[1f32, 0.5, 3.0, 2.0]).unwrap();
        targets.write(&[3i32, 2]).unwrap();
        executor.replay(&recording).unwrap().wait().unwrap();
        assert_eq!(y.to_bytes().unwrap(), composition(operands).unwrap().to_bytes().unwrap(), "operand {at}");
        x.write(&[1f32; 8]).unwrap();
        targets.write(&[1i32, 3]).unwrap();
    }
}
