//! The Solaris commands, over a host without an engine.
//!
//! The law: whatever words, an exit code and no panic; a refusal says why and changes nothing; the model stays
//! valid. `firelane`'s own verbs are not here: some of them touch files and start programs.

use std::time::Duration;

use firelane_api::Stub;
use firelane_cli::{Session, run};

use super::api::{example, planner};
use crate::feedback::note;

const COMMANDS: [&str; 5] = ["dladm", "flowadm", "ipadm", "dlstat", "flowstat"];

/// Command lines; words are separated by blanks.
pub fn target_cli(data: &[u8]) {
    let stub = Stub::new(example(), planner);
    let text = String::from_utf8_lossy(data);
    for line in text.lines().take(30) {
        let words: Vec<String> = line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        if words.first().is_some_and(|first| COMMANDS.contains(&first.as_str())) {
            command(&stub, &words);
        }
    }
}

fn command(stub: &Stub, words: &[String]) {
    let before = stub.store();
    let (mut out, mut err, mut naps) = (Vec::new(), Vec::new(), 0);
    let code = run(
        &mut Session {
            api: stub,
            out: &mut out,
            err: &mut err,
            rows: None,
            sleep: &mut |_: Duration| {
                naps += 1;
                naps < 3
            },
        },
        words,
    );
    let after = stub.store();
    let said = String::from_utf8(err).expect("messages are text");
    String::from_utf8(out).expect("output is text");
    for model in [&after.active, &after.persistent] {
        assert_eq!(model.validate(), [], "after {words:?}");
    }
    let unchanged = before.active == after.active && before.persistent == after.persistent;
    assert!(code == 0 || !said.is_empty(), "{words:?} fails and says nothing");
    // Commands that change several properties stop at the first that is refused, as the original's do.
    note((words.first(), words.get(1).map(String::len), code, unchanged));
}
