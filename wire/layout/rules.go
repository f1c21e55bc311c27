package layout

import (
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

// Rules is a state machine that a layout binds a header to.
type Rules uint8

// The rules.
const (
	ShowOnly Rules = iota // none that gradnic has: frames are decoded and shown
	SwitchML              // SwitchML's switch
	Native                // docs/protocol.md
)

var ruleNames = [...]string{"none", "switchml", "native"}

// String is the word that a file uses.
func (r Rules) String() string { return ruleNames[r] }

// use is how a state machine uses a meaning.
type use struct {
	width  int               // most bits that it has
	needed bool              // there is nothing to assume without it
	words  map[string]uint64 // its own words for the numbers, which a file's values translate
}

var kinds = map[string]uint64{
	"contribution": uint64(native.Contribution), "report": uint64(native.Report), "supply": uint64(native.Supply), "leave": uint64(native.Leave),
	"result": uint64(native.Result), "notice": uint64(native.Notice), "ask": uint64(native.Ask),
}

var types = map[string]uint64{
	"int32": uint64(native.Int32), "int64": uint64(native.Int64), "int8": uint64(native.Int8), "float32": uint64(native.Float32),
	"float64": uint64(native.Float64), "float16": uint64(native.Float16), "bfloat16": uint64(native.BFloat16),
}

// uses says which meanings each state machine has.
var uses = map[Rules]map[Meaning]use{
	ShowOnly: nil, // any
	SwitchML: {
		Size: {width: 3}, Job: {width: 8}, Tag: {width: 32}, Version: {width: 1, needed: true}, Slot: {width: 14, needed: true},
		Exponent0: {width: 8}, Exponent1: {width: 8}, Length: {width: 16},
	},
	Native: {
		Kind: {width: 4, needed: true, words: kinds}, Flags: {width: 8}, Type: {width: 8, words: types}, Codec: {width: 8}, Job: {width: 16},
		Worker: {width: 16, needed: true}, Epoch: {width: 32, needed: true}, Round: {width: 32, needed: true}, Slot: {width: 32, needed: true},
		Tag: {width: 32}, Count: {width: 16}, Length: {width: 16}, Plane: {width: 8},
	},
}

// headerLen is the length of the rules' own header.
func (r Rules) headerLen() int {
	if r == SwitchML {
		return switchml.HeaderLen
	}
	return native.HeaderLen
}

// Fault says why a frame is not of the layout. The zero value is OK.
type Fault uint8

// The reasons, each with the drop reason that String gives.
const (
	OK        Fault = iota // "ok"
	Foreign                // "layout-foreign": another encapsulation or port: somebody else's frame
	Short                  // "layout-short": less than the header
	BadFixed               // "layout-fixed": a field that has one value has another
	BadValue               // "layout-value": a value that the layout has no meaning for
	BadLength              // "layout-length": the length field, or the payload, is not right
	NoRoom                 // "layout-room": no room before the frame for the longer header, or buf ends with a frame that is shorter than headers may be

	// NumFaults is the number of values, for counters indexed by Fault.
	NumFaults = int(iota)
)

var faultNames = [NumFaults]string{"ok", "layout-foreign", "layout-short", "layout-fixed", "layout-value", "layout-length", "layout-room"}

// String is the drop reason's name, in kebab case.
func (f Fault) String() string {
	if int(f) < NumFaults {
		return faultNames[f]
	}
	return "unknown-fault"
}
