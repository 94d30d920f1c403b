//! dbg
use firelane::*;
use std::time::*;
fn main() {
    let n: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1);
    let (one, two) = wire(WireConfig::default());
    let mk = |e, m: &str, a: &str| {
        Stack::builder().driven().interface(e).mac(m).unwrap().address(a).unwrap().build().unwrap()
    };
    let c = mk(one, "02:08:20:00:00:01", "10.0.0.1/24");
    let s = mk(two, "02:08:20:00:00:02", "10.0.0.2/24");
    let mut cw = c.engine().workers().pop().unwrap();
    let mut sw = s.engine().workers().pop().unwrap();
    let l = TcpListener::bind(&s, "10.0.0.2:7").unwrap();
    l.set_nonblocking(true).unwrap();
    let cs: Vec<_> = (0..n)
        .map(|_| TcpStream::begin(&c, "10.0.0.2:7".parse().unwrap(), StreamConfig::default()).unwrap())
        .collect();
    let mut ss = vec![];
    while ss.len() < n {
        cw.run_once(Some(Duration::ZERO));
        sw.run_once(Some(Duration::ZERO));
        if let Ok((x, _)) = l.accept() {
            ss.push(x);
        }
    }
    for x in cs.iter().chain(&ss) {
        x.set_nodelay(true).unwrap();
    }
    for x in &cs {
        x.try_write(&[7; 64]).unwrap();
    }
    let mut m = [0; 64];
    let start = Instant::now();
    let mut last = start;
    for i in 0..std::env::args().nth(2).and_then(|a| a.parse().ok()).unwrap_or(200) {
        let mut turns = 0;
        let mut done = 0;
        while done < n && turns < 1_000_000 {
            turns += 1;
            cw.run_once(Some(Duration::ZERO));
            for x in &cs {
                if let Ok(64) = x.try_read(&mut m) {
                    done += 1;
                    x.try_write(&m).unwrap();
                }
            }
            sw.run_once(Some(Duration::ZERO));
            for x in &ss {
                if let Ok(64) = x.try_read(&mut m) {
                    x.try_write(&m).unwrap();
                }
            }
        }
        let now = Instant::now();
        if i < 30 || i > 99_000_000 {
            println!("{i}: turns {turns} {:?}", now - last);
        }
        if turns > 100 {
            println!("{i}: turns {turns} {:?} done {done}", now - last);
            if turns >= 1_000_000 {
                break;
            }
        }
        last = now;
    }
}
