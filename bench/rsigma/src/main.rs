//! rsigma's evaluation alone: RULES.yml EVENTS.jsonl PAIRS REPETITIONS
//!
//! Prints one line of JSON a way of looking for rules (plain, with a search across rules, with a
//! filter): the CPU seconds of each repetition. PAIRS gets a line "event rule" for each match of
//! the plain way; the other ways must match as often.

use rsigma_eval::{Engine, JsonEvent};
use std::io::Write;

fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells CPU time here");
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&arguments[1]).unwrap();
    let rules = rsigma_parser::parse_sigma_yaml(&text).unwrap();
    let text = std::fs::read_to_string(&arguments[2]).unwrap();
    let events: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let repetitions: usize = arguments[4].parse().unwrap();
    for way in ["plain", "ac", "bloom"] {
        let mut engine = Engine::new();
        engine.set_cross_rule_ac(way == "ac");
        engine.set_bloom_prefilter(way == "bloom");
        engine.add_collection(&rules).unwrap();
        let mut seconds = Vec::new();
        let mut pairs = Vec::new();
        for _ in 0..repetitions {
            pairs.clear();
            let began = cpu_seconds();
            for (number, event) in events.iter().enumerate() {
                for hit in engine.evaluate(&JsonEvent::borrow(event)) {
                    pairs.push((number, hit.header.rule_id.clone()));
                }
            }
            seconds.push(cpu_seconds() - began);
        }
        if way == "plain" {
            let mut file = std::io::BufWriter::new(std::fs::File::create(&arguments[3]).unwrap());
            for (number, rule) in &pairs {
                writeln!(file, "{} {}", number, rule.clone().unwrap_or_default()).unwrap();
            }
        }
        let line = serde_json::json!({
            "way": way, "rules": engine.rule_count(), "pairs": pairs.len(), "seconds": seconds,
        });
        println!("{line}");
    }
}
