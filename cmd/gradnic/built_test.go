package main

import (
	"os"
	"testing"

	"gradnic/internal/builttest"
)

// built is the command, for all tests that run it.
var built builttest.Command

func TestMain(m *testing.M) { os.Exit(built.Run(m)) }
