//! The directive `scalla.namerule`.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use crate::effective::{NAME_RULES_MAX, NameLayout, NamePattern, NameRule, PatternPair};
use crate::language::DirectiveToken;
use crate::setting::Setting;

/// The grammar of the arguments.
pub(super) const GRAMMAR: &str = "from to [rucio | regex pattern result inverse pattern result]";

pub(super) fn name_rule(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let from = arguments.path("namerule from")?;
    let to = arguments.path("namerule to")?;
    let layout = layout(arguments)?;
    draft.finish(arguments);
    let rules = &mut draft.effective.storage.name_rules;
    // With equal targets, two names would stand for one file.
    let earlier = rules.iter().find(|earlier| earlier.from == from || earlier.to == to);
    if let Some(earlier) = earlier {
        let which = if earlier.from == from { &from } else { &to };
        let what = format!("{which} is in the rule at {} already", earlier.origin);
        return Err(DirectiveFault::at(arguments.name, what, "keep one of the two rules"));
    }
    if rules.len() >= NAME_RULES_MAX {
        let what = format!("there are more than {NAME_RULES_MAX} rules");
        return Err(DirectiveFault::at(arguments.name, what, "use a pattern instead of many rules"));
    }
    rules.push(Setting::new(NameRule { from, to, layout }, arguments.origin()));
    Ok(())
}

fn layout(arguments: &mut Arguments<'_>) -> Result<NameLayout, DirectiveFault> {
    let Some(kind) = arguments.next() else { return Ok(NameLayout::Prefix) };
    match kind.text.as_str() {
        "rucio" => Ok(NameLayout::Rucio),
        "regex" => {
            let forward = pattern(arguments)?;
            if arguments.take("inverse").is_none() {
                let what = "inverse not specified";
                return Err(DirectiveFault::at(kind, what, format!("allowed: {}", arguments.grammar)));
            }
            let inverse = pattern(arguments)?;
            Ok(NameLayout::Pattern(Box::new(PatternPair { forward, inverse })))
        }
        _ => Err(arguments.invalid(kind, "name rule")),
    }
}

fn pattern(arguments: &mut Arguments<'_>) -> Result<NamePattern, DirectiveFault> {
    let pattern = arguments.need("pattern")?;
    let result = arguments.need("result")?;
    let invalid = |token: &DirectiveToken, why| {
        DirectiveFault::at(token, format!("invalid pattern: {why}"), "the result names groups as {1} to {9}")
    };
    NamePattern::new(&pattern.text, &result.text).map_err(|why| invalid(pattern, why))
}
