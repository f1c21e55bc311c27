package aggregation

import (
	"strconv"

	"gradnic/internal/element"
)

func name(names []string, kind string, v uint8) string {
	if int(v) < len(names) {
		return names[v]
	}
	return kind + " " + strconv.Itoa(int(v))
}

var (
	ruleNames      = []string{SwitchML: "switchml", Rounds: "rounds"}
	typeNames      = element.Names()
	opNames        = []string{Sum: "sum", Mean: "mean", Min: "min", Max: "max"}
	orderNames     = []string{Arrival: "arrival", Ranked: "ranked"}
	policyNames    = []string{Propagate: "propagate", Saturate: "saturate"}
	stragglerNames = []string{Wait: "wait", Partial: "partial"}
	phaseNames     = []string{Idle: "idle", Collecting: "collecting", Complete: "complete"}
	flagNames      = []string{"non-finite", "saturated", "wrapped", "partial"} // by bit
	outcomeNames   = []string{
		Added:         "added",
		Completed:     "completed",
		Answered:      "answered",
		Duplicate:     "duplicate",
		Stale:         "stale-round",
		Early:         "early-round",
		Aborted:       "aborted-round",
		InvalidSlot:   "slot-out-of-range",
		InvalidSet:    "set-out-of-range",
		InvalidWorker: "rank-out-of-range",
		InvalidLength: "values-length",
		InvalidValues: "values-corrupt",
	}
)

// String is the rule's name.
func (r Rule) String() string { return name(ruleNames, "rule", uint8(r)) }

// String is the type's name.
func (t Type) String() string { return name(typeNames, "type", uint8(t)) }

// String is the operation's name.
func (o Op) String() string { return name(opNames, "operation", uint8(o)) }

// String is the order's name.
func (o Order) String() string { return name(orderNames, "order", uint8(o)) }

// String is the policy's name.
func (p Policy) String() string { return name(policyNames, "policy", uint8(p)) }

// String is the straggler policy's name.
func (s Stragglers) String() string { return name(stragglerNames, "straggler policy", uint8(s)) }

// String is the phase's name.
func (p Phase) String() string { return name(phaseNames, "phase", uint8(p)) }

// String is the outcome's name, in kebab case: for those that drop a packet it
// is the drop reason.
func (o Outcome) String() string { return name(outcomeNames, "outcome", uint8(o)) }

func (t Type) known() bool { return int(t) < len(typeNames) }

// size is the bytes of one element on the wire. It says nothing about BFP16,
// whose elements come in blocks: see Spec.WireBytes.
func (t Type) size() int { return element.Type(t).Size() }
