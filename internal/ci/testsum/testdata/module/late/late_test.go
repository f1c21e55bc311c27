package late

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	m.Run()
	fmt.Println("something is left over")
	os.Exit(1)
}

func TestFails(t *testing.T) { t.Error("before the end") }
