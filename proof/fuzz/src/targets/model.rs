//! The configuration: its text, its checks, and the plan between two models.
//!
//! Text that is refused names where; text that is accepted is a fixed point, and the plan from nothing to it,
//! carried out step by step, gives it. The first byte chooses between text and a generated model.

use firelane_model::Model;
use firelane_plan::{apply_to_model, plan, render};

use crate::feedback::note;

/// A configuration file, or bytes from which two valid models are made.
pub fn target_model(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    // A bar cannot begin a TOML file, so seeds of generated models do not look like text.
    if *first == b'|' {
        let (from, to) = rest.split_at(rest.len() / 2);
        return check_plan(&firelane_models::model(from), &firelane_models::model(to));
    }
    let Ok(text) = core::str::from_utf8(data) else { return };
    match Model::from_toml("fuzz.toml", text) {
        Ok(model) => {
            note(("accepted", model.vnics.len().min(3), model.flows.len().min(3)));
            check_text(&model);
            check_plan(&Model::default(), &model);
        }
        Err(faults) => {
            assert!(!faults.is_empty(), "refused without a reason");
            for fault in faults {
                let line = fault.to_string();
                assert!(line.starts_with("fuzz.toml"), "{line}");
                // The shape of the message, without what is quoted from the text.
                note(
                    line.split(['"', '`', '\'']).next().map(|t| t.replace(|c: char| c.is_ascii_digit(), "")),
                );
            }
        }
    }
}

fn check_text(model: &Model) {
    assert_eq!(model.validate(), [], "what is accepted is valid");
    let text = model.to_toml();
    let again = Model::from_toml("again.toml", &text).expect("what is written can be read");
    assert_eq!(&again, model);
    assert_eq!(again.to_toml(), text);
}

fn check_plan(present: &Model, wanted: &Model) {
    check_text(present);
    check_text(wanted);
    let steps = plan(wanted, present);
    assert_eq!(steps.is_empty(), present == wanted);
    assert!(!render(&steps).is_empty());
    let mut model = present.clone();
    for step in &steps {
        apply_to_model(&mut model, step);
        assert_eq!(model.validate(), [], "after: {step}");
        note(core::mem::discriminant(&step.action));
    }
    assert_eq!(&model, wanted);
    assert!(plan(wanted, wanted).is_empty());
}
