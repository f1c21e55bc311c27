package settings

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The golden bytes are struct ethtool_rxnfc as a C program with <linux/ethtool.h> on a little-endian 64-bit machine lays
// it out: insert a rule for UDP over IPv4 to 10.50.0.254 port 0xbee3 to queue 3 at place 17; delete place 17; hash UDP over
// IPv4 by addresses and ports.
const (
	goldenInsert = "3200000000000000000000000000000002000000000000000a3200fe0000bee300000000000000000000000000000000" +
		"000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000" +
		"ffffffff0000ffff00000000000000000000000000000000000000000000000000000000000000000000000000000000" +
		"000000000000000000000000000000000000000000000000030000000000000011000000000000000000000000000000"
	goldenDelete = "310000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000" +
		"000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000" +
		"000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000" +
		"000000000000000000000000000000000000000000000000000000000000000011000000000000000000000000000000"
	goldenHash = "2a00000002000000f0000000000000000000000000000000000000000000000000000000000000000000000000000000" +
		"000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000" +
		"000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000" +
		"000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
)

func golden(t *testing.T, s string) []byte {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the golden bytes are those of a little-endian machine")
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != rxnfcSize {
		t.Fatalf("%d golden bytes", len(b))
	}
	return b
}

func TestRuleBytes(t *testing.T) {
	r := Rule{IP: [4]byte{10, 50, 0, 254}, Port: 0xbee3, Queue: 3}
	b := newRxnfc(cmdSRXCLSRLINS)
	putRule(b, r, 17)
	if want := golden(t, goldenInsert); !slices.Equal(b, want) {
		t.Errorf("insert\n%x, want\n%x", b, want)
	}
	// What the driver is told to delete a rule, and to hash by ports.
	var told []byte
	d := &device{nfc: func(buf []byte) error { told = slices.Clone(buf); return nil }}
	if err := d.set(kindHash, "", values{"fields": hashUDP4ByPorts}); err != nil || !slices.Equal(told, golden(t, goldenHash)) {
		t.Errorf("hash: %v\n%x", err, told)
	}
	drv := &driver{t: t, size: 20, rules: map[uint32][]byte{17: b[offSpec : offSpec+specSize]}}
	d.nfc = func(buf []byte) error { told = slices.Clone(buf); return drv.call(buf) }
	if err := d.deleteRule(r); err != nil || !slices.Equal(told, golden(t, goldenDelete)) {
		t.Errorf("delete: %v\n%x", err, told)
	}
	if !sameRule(b, r) || sameRule(b, Rule{r.IP, r.Port, 2}) || sameRule(b, Rule{r.IP, 0xbee2, 3}) || sameRule(b, Rule{[4]byte{10, 50, 0, 253}, r.Port, 3}) {
		t.Error("sameRule does not know a rule by its bytes")
	}
	if s := r.String(); s != "flow-type udp4 dst-ip 10.50.0.254 dst-port 48867 action 3" {
		t.Error(s)
	}
}

// driver is the ethtool_rxnfc part of a NIC's driver, as the kernel's documentation of these commands has it: a table of
// rules by place, or one that chooses places itself.
type driver struct {
	t       *testing.T
	special bool
	size    uint32
	rules   map[uint32][]byte
	hash    uint64
	// hashMask is the fields that it can hash; 0: all.
	hashMask uint64
	refuse   func(cmd uint32) error
}

func (d *driver) call(b []byte) error {
	cmd := order.Uint32(b)
	if d.refuse != nil {
		if err := d.refuse(cmd); err != nil {
			return err
		}
	}
	place := order.Uint32(b[offSpec+offSpecLoc:])
	switch cmd {
	case cmdGRXCLSRLCNT:
		order.PutUint32(b[offRuleCnt:], uint32(len(d.rules)))
		data := uint64(d.size)
		if d.special {
			data |= locSpecial
		}
		order.PutUint64(b[offData:], data)
	case cmdGRXCLSRLALL:
		if n := order.Uint32(b[offRuleCnt:]); int(n) < len(d.rules) {
			return unix.EMSGSIZE
		}
		i := 0
		for p := range d.rules {
			order.PutUint32(b[offRuleLocs+4*i:], p)
			i++
		}
		order.PutUint32(b[offRuleCnt:], uint32(i))
		order.PutUint64(b[offData:], uint64(d.size))
	case cmdGRXCLSRULE:
		r, ok := d.rules[place]
		if !ok {
			return unix.EINVAL
		}
		copy(b[offSpec:offSpec+specSize], r)
	case cmdSRXCLSRLINS:
		if place == locAny {
			if !d.special {
				return unix.EINVAL
			}
			for place = 100; d.rules[place] != nil; place++ {
			}
			order.PutUint32(b[offSpec+offSpecLoc:], place)
		} else if place >= d.size {
			return unix.ENOSPC
		}
		d.rules[place] = slices.Clone(b[offSpec : offSpec+specSize])
	case cmdSRXCLSRLDEL:
		if d.rules[place] == nil {
			return unix.ENOENT
		}
		delete(d.rules, place)
	case cmdGRXFH:
		order.PutUint64(b[offData:], d.hash)
	case cmdSRXFH:
		d.hash = order.Uint64(b[offData:])
		if d.hashMask != 0 {
			d.hash &= d.hashMask
		}
	default:
		d.t.Errorf("command %#x", cmd)
		return unix.EOPNOTSUPP
	}
	return nil
}

// testDevice is lo with a driver that has rules.
func testDevice(t *testing.T, drv *driver) *device {
	t.Helper()
	drv.t = t
	d, err := openDevice("lo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	d.nfc = drv.call
	return d
}

func someRules(n int) (rules []Rule) {
	for i := range n {
		rules = append(rules, Rule{[4]byte{10, 50, 0, 254}, uint16(0xbee0 + i), i % 4})
	}
	return rules
}

// TestRules: rules and the hash are set, found again, and taken away; those of others stay, and so does an equal one that
// was there before.
func TestRules(t *testing.T) {
	for _, special := range []bool{false, true} {
		drv := &driver{special: special, size: 20, hash: 0x30, rules: map[uint32][]byte{}}
		d := testDevice(t, drv)
		rules := someRules(16)
		for _, others := range []Rule{{[4]byte{192, 0, 2, 1}, 53, 0}, rules[5]} {
			if err := d.insertRule(others); err != nil {
				t.Fatal(err)
			}
		}
		dir := t.TempDir()
		a, err := apply(dir, d, Want{HashPorts: true, Rules: rules})
		if err != nil || len(a.Changed) != 16 || len(a.Skipped) != 0 {
			t.Fatalf("special %t: %v, %+v", special, err, a)
		}
		if len(drv.rules) != 17 || drv.hash != 0xf0 {
			t.Fatalf("special %t: %d rules, hash %#x", special, len(drv.rules), drv.hash)
		}
		for _, r := range rules {
			if _, ok, err := d.findRule(r); !ok || err != nil {
				t.Fatalf("%v is not there: %v", r, err)
			}
		}
		if !special && drv.rules[0] != nil {
			t.Fatal("a place of high precedence was taken although others were free")
		}
		r, err := readRecord(a.record.path)
		if err != nil || len(r.Changes) != 16 {
			t.Fatalf("state file: %v, %+v", err, r)
		}
		// As after a kill: by what the file says.
		if undone, kept, err := r.undo(d); err != nil || len(kept) != 0 || len(undone) != 16 {
			t.Fatal(undone, kept, err)
		}
		if len(drv.rules) != 2 || drv.hash != 0x30 {
			t.Fatalf("special %t: %d rules are left, hash %#x", special, len(drv.rules), drv.hash)
		}
		if r, err := readRecord(a.record.path); r != nil || err != nil {
			t.Fatalf("the state file is left: %+v, %v", r, err)
		}
	}
}

// TestRulesRefused: no driver support and a full table are no errors, but said; of a part of the rules nothing stays.
func TestRulesRefused(t *testing.T) {
	none := &driver{refuse: func(uint32) error { return unix.EOPNOTSUPP }}
	a, err := apply(t.TempDir(), testDevice(t, none), Want{HashPorts: true, Rules: someRules(3)})
	if err != nil || len(a.Changed) != 0 || len(a.Skipped) != 2 || !strings.Contains(a.Skipped[1], "ntuple") {
		t.Fatalf("%v, %+v", err, a)
	}
	full := &driver{size: 4, rules: map[uint32][]byte{}}
	dir := t.TempDir()
	a, err = apply(dir, testDevice(t, full), Want{HashPorts: true, Rules: someRules(6)})
	if err != nil || len(a.Skipped) != 1 || !strings.Contains(a.Skipped[0], "all 4 places") || len(full.rules) != 0 {
		t.Fatalf("%v, %+v, %d rules", err, a, len(full.rules))
	}
	if len(a.Changed) != 1 || full.hash != hashUDP4ByPorts {
		t.Fatalf("%+v", a)
	}
	if _, _, err := a.record.undo(testDevice(t, full)); err != nil || full.hash != 0 {
		t.Fatalf("%v, hash %#x", err, full.hash)
	}
	// One of the rules was there before: it is not taken away with the others.
	d := testDevice(t, full)
	rules := someRules(6)
	if err := d.insertRule(rules[1]); err != nil {
		t.Fatal(err)
	}
	if a, err = apply(t.TempDir(), d, Want{HashPorts: true, Rules: rules}); err != nil || len(a.Changed) != 1 || len(full.rules) != 1 {
		t.Fatalf("%v, %+v, %d rules", err, a, len(full.rules))
	}
	if _, ok, err := d.findRule(rules[1]); !ok || err != nil {
		t.Fatalf("somebody else's rule is gone: %v", err)
	}
	// A rule that cannot be taken away again stays in the record, so that restore does it.
	full.rules, full.hash = map[uint32][]byte{}, 0
	full.refuse = func(cmd uint32) error {
		if cmd == cmdSRXCLSRLDEL {
			return unix.EBUSY
		}
		return nil
	}
	if a, err = apply(t.TempDir(), d, Want{Rules: rules}); err != nil || len(a.Changed) != 4 || len(full.rules) != 4 {
		t.Fatalf("%v, %+v, %d rules", err, a, len(full.rules))
	}
	full.refuse = nil
	r, err := readRecord(a.record.path)
	if err != nil || r == nil {
		t.Fatal(r, err)
	}
	if _, _, err := r.undo(d); err != nil || len(full.rules) != 0 {
		t.Fatalf("%v, %d rules are left", err, len(full.rules))
	}
}

// TestWrittenBefore: each change is in the state file before the driver is told, so that a kill at any moment leaves nothing
// that cannot be set back; and what a driver makes of a wish is what is looked for then.
func TestWrittenBefore(t *testing.T) {
	drv := &driver{size: 8, hash: 0x30, hashMask: 0x70, rules: map[uint32][]byte{}}
	d := testDevice(t, drv)
	dir := t.TempDir()
	mine, err := newRecord(dir, d)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	drv.refuse = func(cmd uint32) error {
		if cmd != cmdSRXFH && cmd != cmdSRXCLSRLINS {
			return nil
		}
		told++
		if r, err := readRecord(mine.path); err != nil || r == nil || len(r.Changes) != told {
			t.Errorf("change %d: the state file has %+v, %v", told, r, err)
		}
		return nil
	}
	if _, err := apply(dir, d, Want{HashPorts: true, Rules: someRules(3)}); err != nil || told != 4 {
		t.Fatalf("%d changes, %v", told, err)
	}
	drv.refuse = nil
	r, err := readRecord(mine.path)
	if err != nil || drv.hash != 0x70 || r.Changes[0].New["fields"] != 0x70 {
		t.Fatalf("%v: hash %#x, noted %+v", err, drv.hash, r)
	}
	if undone, kept, err := r.undo(d); err != nil || len(undone) != 4 || len(kept) != 0 || drv.hash != 0x30 || len(drv.rules) != 0 {
		t.Fatalf("%v, %q, %q: hash %#x, %d rules", err, undone, kept, drv.hash, len(drv.rules))
	}
}

// TestUndoFails: what cannot be set back stays in the file, and the rest of it too.
func TestUndoFails(t *testing.T) {
	drv := &driver{size: 8, rules: map[uint32][]byte{}}
	d := testDevice(t, drv)
	a, err := apply(t.TempDir(), d, Want{HashPorts: true, Rules: someRules(2)})
	if err != nil {
		t.Fatal(err)
	}
	path := a.record.path
	drv.refuse = func(cmd uint32) error {
		if cmd == cmdSRXFH {
			return unix.EPERM
		}
		return nil
	}
	if _, _, err := a.record.undo(d); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "gradnic restore") {
		t.Fatal(err)
	}
	r, err := readRecord(path)
	if err != nil || len(r.Changes) != 1 || r.Changes[0].Kind != kindHash {
		t.Fatalf("%v, %+v", err, r)
	}
	drv.refuse = nil
	if _, _, err := r.undo(d); err != nil || drv.hash != 0 || len(drv.rules) != 0 {
		t.Fatalf("%v, %#x, %d rules", err, drv.hash, len(drv.rules))
	}
}
