package aggregation

import "testing"

func TestNamesReadBack(t *testing.T) {
	for i, n := range typeNames {
		if v, err := ParseType(n); err != nil || v != Type(i) || v.String() != n {
			t.Errorf("%s: %v %v", n, v, err)
		}
	}
	for i, n := range opNames {
		if v, err := ParseOp(n); err != nil || v != Op(i) {
			t.Errorf("%s: %v %v", n, v, err)
		}
	}
	for i, n := range orderNames {
		if v, err := ParseOrder(n); err != nil || v != Order(i) {
			t.Errorf("%s: %v %v", n, v, err)
		}
	}
	for i, n := range policyNames {
		if v, err := ParsePolicy(n); err != nil || v != Policy(i) {
			t.Errorf("%s: %v %v", n, v, err)
		}
	}
	var p Policy
	if p.UnmarshalText([]byte("ignore")) == nil || p.UnmarshalText(nil) == nil {
		t.Error("a policy that there is not")
	}
}
