package bump

import (
	"encoding/binary"

	"gradnic/wire/inet"
)

// The table of flows: sets of a few flows each, of which the one that was used longest ago makes room.
const (
	flowSets = 1024
	flowWays = 4
	// MaxFlows is how many flows are kept apart.
	MaxFlows = flowSets * flowWays
)

// flow is one flow of a rule, as long as it is in the table.
type flow struct {
	key      flowKey
	used     int64 // when, 0: the entry is free
	rule     *rule
	path     *path
	id       uint16
	sequence uint32
}

type flowTable struct {
	sets [flowSets][flowWays]flow
	last *flow // of the last frame: the next is mostly the same flow's
}

// Odd multipliers from the golden ratio (Knuth, TAOCP 6.4).
const (
	hashA = 0x9e3779b97f4a7c15
	hashB = 0xc2b2ae3d27d4eb4f
)

func (k *flowKey) hash() uint64 {
	h := uint64(k.srcIP.Uint32())<<32 | uint64(k.dstIP.Uint32())
	h = h*hashA ^ (uint64(k.srcPort)<<32|uint64(k.dstPort)<<16|uint64(k.proto))*hashB
	return h ^ h>>32
}

// keyOf is the key of a frame whose headers wire.Head has returned.
func keyOf(frame, head []byte, k *flowKey) {
	k.dst, k.src = inet.MAC(frame[0:6]), inet.MAC(frame[6:12])
	k.srcIP, k.dstIP = inet.Addr(head[12:16]), inet.Addr(head[16:20])
	k.srcPort, k.dstPort = binary.BigEndian.Uint16(head[inet.IPv4Len:]), binary.BigEndian.Uint16(head[inet.IPv4Len+2:])
	k.proto = head[9]
}

// flowOf returns the flow of a frame; nil when no rule has it. now is not 0.
func (e *Engine) flowOf(k *flowKey) *flow {
	t := e.flows
	if f := t.last; f != nil && f.key == *k {
		f.used = e.now
		return f
	}
	set := &t.sets[k.hash()%flowSets]
	oldest := &set[0]
	for i := range set {
		f := &set[i]
		if f.used != 0 && f.key == *k {
			f.used = e.now
			t.last = f
			return f
		}
		if f.used < oldest.used {
			oldest = f
		}
	}
	for i := range e.rules {
		if e.rules[i].matches(k) {
			if oldest.used == 0 {
				e.count.Flows++
			}
			*oldest = flow{key: *k, used: e.now, rule: &e.rules[i], id: oldest.id}
			t.last = oldest
			return oldest
		}
	}
	return nil
}

func newFlowTable() *flowTable {
	t := new(flowTable)
	for s := range t.sets {
		for w := range t.sets[s] {
			t.sets[s][w].id = uint16(s*flowWays + w)
		}
	}
	return t
}
