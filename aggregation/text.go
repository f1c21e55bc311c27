package aggregation

import (
	"fmt"
	"strings"
)

// parse finds a name in a list of them.
func parse(names []string, kind, s string) (uint8, error) {
	for i, n := range names {
		if n == s {
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("%s %q: legal are %s", kind, s, strings.Join(names, ", "))
}

// ParseType is the type of a name that String gives.
func ParseType(s string) (Type, error) {
	v, err := parse(typeNames, "element type", s)
	return Type(v), err
}

// ParseOp is the operation of a name that String gives.
func ParseOp(s string) (Op, error) {
	v, err := parse(opNames, "operation", s)
	return Op(v), err
}

// ParseOrder is the order of a name that String gives.
func ParseOrder(s string) (Order, error) {
	v, err := parse(orderNames, "order", s)
	return Order(v), err
}

// ParsePolicy is the policy of a name that String gives.
func ParsePolicy(s string) (Policy, error) {
	v, err := parse(policyNames, "policy", s)
	return Policy(v), err
}

// MarshalText implements encoding.TextMarshaler.
func (t Type) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Type) UnmarshalText(b []byte) (err error) {
	*t, err = ParseType(string(b))
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Op) UnmarshalText(b []byte) (err error) {
	*o, err = ParseOp(string(b))
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (o Order) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Order) UnmarshalText(b []byte) (err error) {
	*o, err = ParseOrder(string(b))
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Policy) UnmarshalText(b []byte) (err error) {
	*p, err = ParsePolicy(string(b))
	return err
}
