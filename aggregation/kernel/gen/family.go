//go:build generate

package main

import "math"

// slot is the machine type that a slot's elements have.
type slot struct {
	name    string // part of the loops' names
	goType  string
	size    int
	float   bool
	divides bool // has an assembly loop for the mean
}

var (
	i32 = slot{name: "I32", goType: "int32", size: 4, divides: true}
	i64 = slot{name: "I64", goType: "int64", size: 8}
	f32 = slot{name: "F32", goType: "float32", size: 4, float: true, divides: true}
	f64 = slot{name: "F64", goType: "float64", size: 8, float: true, divides: true}

	slots = []slot{i32, i64, f32, f64}
)

// format is an element on the wire.
type format struct {
	name string // as in package kernel's Type constants
	size int    // bytes on the wire
	slot slot
	// over holds, for floats, the bits of the smallest magnitude of a slot that rounds to an infinity on the wire.
	over uint64
}

var formats = []format{
	{name: "Int32", size: 4, slot: i32},
	{name: "Int64", size: 8, slot: i64},
	{name: "Int8", size: 1, slot: i32},
	{name: "Float32", size: 4, slot: f32, over: 0x7f800000},
	{name: "Float64", size: 8, slot: f64, over: 0x7ff0000000000000},
	{name: "Float16", size: 2, slot: f32, over: uint64(math.Float32bits(65520))},
	{name: "BFloat16", size: 2, slot: f32, over: 0x7f7f8000},
}

// narrow tells that the wire holds less than the slot, so that encoding may overflow.
func (f format) narrow() bool { return f.size < f.slot.size }

// op is one kind of loop: what it reads, how it folds and what it writes.
type op struct {
	name string
	fold string // "", "Add", "Min" or "Max": how wire and slot become the new slot
	src  bool   // reads wire bytes
	put  bool   // writes wire bytes
	peak bool   // also returns the largest magnitude of the new slot
}

// reads and writes tell what happens to the slot.
func (o op) reads() bool  { return o.fold != "" || !o.src }
func (o op) writes() bool { return o.src }

var ops = []op{
	{name: "set", src: true},
	{name: "put", put: true},
	{name: "add", fold: "Add", src: true},
	{name: "min", fold: "Min", src: true},
	{name: "max", fold: "Max", src: true},
	{name: "addPut", fold: "Add", src: true, put: true},
	{name: "minPut", fold: "Min", src: true, put: true},
	{name: "maxPut", fold: "Max", src: true, put: true},
	{name: "addPeak", fold: "Add", src: true, peak: true},
}

func opsOf(f format) []op {
	var out []op
	for _, o := range ops {
		if !o.peak || f.slot.name == "F32" {
			out = append(out, o)
		}
	}
	return out
}

// Byte offsets in the parameter block that every loop gets, written to the tables as constants too.
const (
	paramDecode  = 0   // 64-byte VPSHUFB control: wire bytes to slot element
	paramEncode  = 64  // 64-byte VPSHUFB control: slot element to wire bytes
	paramSlotMax = 128 // float: what the slot is clamped to; int32, int64: all ones to saturate, zero to wrap
	paramSlotMin = 136
	paramWireMax = 144 // what a narrower wire element is clamped to
	paramWireMin = 152
	paramBytes   = 160
)
