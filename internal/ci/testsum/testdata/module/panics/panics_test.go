package panics

import "testing"

func TestFails(t *testing.T) { t.Error("before the panic") }

func TestPanics(t *testing.T) { panic("here") }
