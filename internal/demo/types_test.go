package demo

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"gradnic/aggregation"
	"gradnic/worker/native"
)

func TestAllTypes(t *testing.T) {
	transports := []Transport{Mem}
	if os.Geteuid() == 0 {
		transports = append(transports, XDP)
	}
	for _, transport := range transports {
		r, err := RunTypes(t.Context(), Options{Workers: 3, Transport: transport, Root: os.Geteuid() == 0, Loss: 0.01}, Types, 2)
		if err != nil {
			t.Fatal(err)
		}
		if !r.OK || len(r.Rows) != 2*len(Types) || r.NIC.Results == 0 {
			t.Fatalf("%+v", r)
		}
		for _, row := range r.Rows {
			if row.Wrong != 0 || row.Differing != 0 || row.MaxErr > row.Bound || row.Exact != strings.HasPrefix(row.Type, "int") {
				t.Errorf("%+v", row)
			}
		}
		var table bytes.Buffer
		if err := r.Table(&table); err != nil || strings.Count(table.String(), "ranked") < len(Types) {
			t.Errorf("%v\n%s", err, &table)
		}
		if b, err := json.Marshal(r); err != nil || !bytes.Contains(b, []byte(`"differing":0`)) {
			t.Errorf("%s %v", b, err)
		}
	}
}

// The model finds an element that is wrong by one unit in the last place of an integer, or by more than a float's bound.
func TestTypeModelFindsErrors(t *testing.T) {
	inputs := [][]float32{{0.5, -0.25, 0.125}, {0.001, 0.002, -0.003}}
	for _, typ := range Types {
		switch typ {
		case aggregation.Int8:
			findsErrors[int8](t, typ, inputs)
		case aggregation.Int32:
			findsErrors[int32](t, typ, inputs)
		case aggregation.Int64:
			findsErrors[int64](t, typ, inputs)
		case aggregation.Float32:
			findsErrors[float32](t, typ, inputs)
		case aggregation.Float64:
			findsErrors[float64](t, typ, inputs)
		case aggregation.BFP16:
			m, err := newBlockModel(nativeJob(typ, len(inputs)), inputs)
			if err != nil {
				t.Fatal(err)
			}
			modelFindsErrors(t, m)
		default:
			findsErrors[uint16](t, typ, inputs)
		}
	}
}

func findsErrors[T native.Element](t *testing.T, typ aggregation.Type, inputs [][]float32) {
	t.Helper()
	m, err := newTypeModel[T](nativeJob(typ, len(inputs)), inputs)
	if err != nil {
		t.Fatal(err)
	}
	modelFindsErrors(t, m)
}

func modelFindsErrors[T native.Element](t *testing.T, m *typeModel[T]) {
	t.Helper()
	typ := m.typ
	if wrong, off := m.check(m.ranked); wrong != 0 {
		t.Errorf("%v: the right sum has %d wrong elements, by %v", typ, wrong, off)
	}
	bad := bytes.Clone(m.ranked)
	bad[size(typ)-1] ^= 0x40
	if typ < aggregation.Float32 {
		bad = bytes.Clone(m.ranked)
		bad[0] ^= 1
	}
	if wrong, _ := m.check(bad); wrong != 1 || differ(m.ranked, bad, size(typ)) != 1 {
		t.Errorf("%v: %d wrong elements found, 1 is", typ, wrong)
	}
}

func TestParseTypes(t *testing.T) {
	if v, err := ParseTypes("int8,float64"); err != nil || len(v) != 2 || v[1] != aggregation.Float64 {
		t.Errorf("%v %v", v, err)
	}
	for _, s := range []string{"", "int16", "block16e8m4s", "int8,"} {
		if _, err := ParseTypes(s); err == nil {
			t.Errorf("%q accepted", s)
		}
	}
}
