use super::*;

const MEASURED: &str = include_str!("../../data/rules-gloo.tsv");

fn outcome(kind: OpKind, op: Option<ReduceOp>, dtype: Dtype) -> String {
    match refusal(Profile::Gloo, kind, op, dtype) {
        None => "ok".to_owned(),
        Some(r) => format!("{}: {}", r.exception.name(), r.message),
    }
}

#[test]
fn gloo_says_what_was_measured() {
    let mut cases = 0;
    for line in MEASURED.lines().skip(2) {
        let [kind, op, expected, dtypes] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("malformed row {line:?}");
        };
        let kind: OpKind = kind.parse().expect("an operation");
        let op = (op != "-").then(|| op.parse::<ReduceOp>().expect("an op"));
        for dtype in dtypes.split(' ') {
            let dtype: Dtype = dtype.parse().expect("a dtype");
            assert_eq!(outcome(kind, op, dtype), expected, "{kind} {op:?} {dtype}");
            cases += 1;
        }
    }
    // Seven reducing operations by nine ops, nine that move; recv is measured with send.
    assert_eq!(cases, (7 * 9 + 9) * Dtype::ALL.len());
}

#[test]
fn what_gloo_accepts_can_be_computed() {
    for &kind in OpKind::ALL {
        let Some(order) = crate::Order::of(Profile::Gloo, kind) else { continue };
        for &op in ReduceOp::ALL {
            for dtype in Dtype::ALL {
                if refusal(Profile::Gloo, kind, Some(op), dtype).is_none() {
                    crate::supported(crate::Reduction::new(order, op, dtype)).expect("a reduction");
                }
            }
        }
    }
}

#[test]
fn what_nccl_accepts_can_be_computed() {
    for &kind in OpKind::ALL {
        let Some(order) = crate::Order::of(Profile::Nccl, kind) else { continue };
        for &op in ReduceOp::ALL {
            for dtype in Dtype::ALL {
                if refusal(Profile::Nccl, kind, Some(op), dtype).is_none() {
                    crate::supported(crate::Reduction::new(order, op, dtype)).expect("a reduction");
                }
            }
        }
    }
}

#[test]
fn barriers_pass_and_a_missing_op_is_a_sum() {
    assert_eq!(outcome(OpKind::Barrier, None, Dtype::Int16), "ok");
    assert_eq!(outcome(OpKind::AllReduce, None, Dtype::Float32), "ok");
    assert_eq!(outcome(OpKind::Broadcast, Some(ReduceOp::Band), Dtype::Float32), "ok");
}
