//! Plots and pages of what a search found.
#![cfg(feature = "report")]
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{DType, Device};
use candle_nn::VarMap;
use common::Values;
use memopt::checkpoint::Targets;
use memopt::models::{ResidualNet, SewBlock};
use memopt::nn::init::seeded;
use memopt::search::{front, Options, Profile, Summary};
use memopt::{optimize, report};

fn found(profile: Profile) -> (Summary, Vec<memopt::search::FrontPoint>) {
    let vb = seeded(&VarMap::new(), 0, DType::F32, &Device::Cpu);
    let net = ResidualNet::new(2, &[8, 16], 2, 10, vb).unwrap();
    let x = Values::new(1).spikes(&[4, 2, 2, 16, 16], 0.3, DType::F32).unwrap();
    let points = front(&net, &x, &Options::default(), 5).unwrap();
    let options = Options::profile(profile).targets(Targets::of::<SewBlock>());
    (optimize(net, &x, options).unwrap().summary().clone(), points)
}

/// The tags of a page: each is closed in the order in which it was opened.
fn check_tags(html: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in html.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap_or_else(|| panic!("`<{tag}` has no end"));
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap();
        match tag {
            _ if ["!doctype", "meta", "br"].contains(&name) || tag.ends_with('/') => {}
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "{tag}"),
            _ => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// The number after `name="`.
fn number(tag: &str, name: &str) -> f64 {
    let from = tag.split_once(&format!(" {name}=\"")).unwrap_or_else(|| panic!("{name} of {tag}")).1;
    from.split('"').next().unwrap().parse().unwrap()
}

#[test]
fn a_page_holds_everything_and_needs_nothing() {
    let (summary, points) = found(Profile::Exhaustive);
    let html = report::page("A <network> & its \"plan\"", &summary, &points).unwrap();
    check_tags(&html);
    assert!(html.contains("A &lt;network&gt; &amp; its &quot;plan&quot;"));
    assert!(!html.contains("<script") && !html.contains("href=") && !html.contains("src="));
    for segment in &summary.segments {
        assert!(html.contains(&format!("<td>{}</td>", segment.path)), "{}", segment.path);
    }
    assert!(summary.structure.contains("join(") && html.contains(&summary.structure));
    for mark in summary.curve_before.iter().chain(&summary.curve_after) {
        assert!(html.contains(&format!("<title>{}: ", mark.name)), "{}", mark.name);
    }
}

#[test]
fn bars_are_inside_of_their_pictures() {
    for profile in Profile::ALL {
        let (summary, points) = found(*profile);
        let html = report::page("A plan", &summary, &points).unwrap();
        let strips: Vec<&str> =
            html.split("<figure>").skip(1).map(|s| s.split("</figure>").next().unwrap()).collect();
        assert_eq!(strips.len(), 2);
        for strip in strips {
            let bars: Vec<&str> = strip.split("<rect").skip(1).collect();
            assert!(!bars.is_empty());
            for bar in bars {
                let [x, y, width, height] = ["x", "y", "width", "height"].map(|name| number(bar, name));
                assert!(x >= 0. && y >= -0.01 && x + width <= 760.01 && y + height <= 90.01, "{bar}");
            }
        }
    }
}

#[test]
fn a_summary_is_80_columns_wide() {
    for profile in Profile::ALL {
        let (mut summary, _) = found(*profile);
        for segment in &mut summary.segments {
            segment.retained = 123_456_789_012;
        }
        summary.notes.push("a note that goes on and on ".repeat(9));
        for line in summary.to_string().lines() {
            assert!(line.chars().count() <= 80 && line.trim_end() == line || line.is_empty(), "`{line}`");
        }
    }
}
