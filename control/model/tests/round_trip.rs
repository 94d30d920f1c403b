//! Whatever a model says survives the file and the API's JSON, and no text makes the reader panic.

use firelane_model::{IpfFile, IpfRule, IpnatRule, Model};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn toml_out_and_in_is_the_same_model(bytes in vec(any::<u8>(), 0..500)) {
        let model = firelane_models::model(&bytes);
        prop_assert_eq!(model.validate(), vec![]);
        let text = model.to_toml();
        prop_assert_eq!(Model::from_toml("dump", &text), Ok(model), "{}", text);
    }

    #[test]
    fn json_out_and_in_is_the_same_model(bytes in vec(any::<u8>(), 0..500)) {
        let model = firelane_models::model(&bytes);
        let text = serde_json::to_string(&model).unwrap();
        prop_assert_eq!(serde_json::from_str::<Model>(&text).unwrap(), model, "{}", text);
    }

    #[test]
    fn a_damaged_file_is_refused_on_one_line_or_read(
        bytes in vec(any::<u8>(), 0..500), at in any::<prop::sample::Index>(), with in ".{0,3}",
    ) {
        let mut text = firelane_models::model(&bytes).to_toml();
        let mut at = at.index(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        text.insert_str(at, &with);
        if let Err(faults) = Model::from_toml("f", &text) {
            prop_assert!(!faults.is_empty());
            for fault in faults {
                prop_assert!(fault.line >= 1 && fault.line <= text.lines().count() + 1);
                prop_assert!(!fault.to_string().contains('\n'), "{}", fault);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn a_rule_of_the_filter_reads_back_as_itself(bytes in vec(any::<u8>(), 0..60)) {
        let rule = firelane_models::ipf_rule(&bytes);
        let text = rule.to_string();
        prop_assert_eq!(text.parse::<IpfRule>(), Ok(rule.clone()), "{}", text);
        // The form is the only one: a second reading writes the same.
        prop_assert_eq!(text.parse::<IpfRule>().unwrap().to_string(), text.clone());
        let file = IpfFile::read("f", &text.replace(' ', " \\\n\t")).unwrap();
        prop_assert_eq!(&file.lines[0].rule.rule, &rule);
    }

    #[test]
    fn a_rule_of_the_translation_reads_back_as_itself(bytes in vec(any::<u8>(), 0..30)) {
        let line = firelane_models::ipnat_line(&bytes);
        if let Ok(rule) = line.parse::<IpnatRule>() {
            let text = rule.to_string();
            prop_assert_eq!(text.parse::<IpnatRule>(), Ok(rule), "{} of {}", text, line);
            prop_assert_eq!(text.parse::<IpnatRule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_damaged_rule_is_refused_on_one_line_or_read(
        bytes in vec(any::<u8>(), 0..60), at in any::<prop::sample::Index>(), with in "[ -~\\n]{0,3}|[^a]",
    ) {
        let mut text = firelane_models::ipf_rule(&bytes).to_string();
        text.insert_str(at.index(text.len() + 1), &with);
        match IpfFile::read("f", &text) {
            Ok(file) => prop_assert!(file.lines.len() <= 2),
            Err(faults) => for fault in faults {
                prop_assert!((1..=text.lines().count()).contains(&fault.line), "{}", fault);
                prop_assert!(!fault.to_string().contains('\n'), "{}", fault);
            },
        }
    }
}
