package python

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/host/nic"
	"gradnic/internal/clib"
	"gradnic/internal/ringlab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// interpreter is Debian's, which has Debian's packages; elsewhere what there is.
func interpreter(t *testing.T, module string) string {
	t.Helper()
	for _, p := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(p, "-c", "import "+module).Run() == nil {
			return p
		}
	}
	if module == "numpy" && os.Getenv("CI") == "true" {
		t.Fatal("python3-numpy is not installed")
	}
	t.Skipf("NOT RUN: no python3 with %s (python3-%s)", module, module)
	return ""
}

func TestPython(t *testing.T) {
	interpreter(t, "numpy")
	so := clib.Build(t)
	for file, c := range map[string]struct {
		module string
		least  int // tests
	}{"test_gradnic.py": {"numpy", 17}, "test_torch.py": {"torch", 7}} {
		t.Run(file, func(t *testing.T) {
			python := interpreter(t, c.module)
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			defer cancel()
			ring, err := ringlab.NewMemory(ctx, 2, nil)
			if err != nil {
				t.Fatal(err)
			}
			var servers []*nic.Server
			defer func() {
				if err := ring.Close(); err != nil {
					t.Error(err)
				}
				for _, s := range servers {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}
			}()
			var sockets []string
			for i, n := range ring.Nodes {
				path := filepath.Join(t.TempDir(), fmt.Sprint("nic", i))
				s, err := nic.Listen(path, n.Ring, nic.Options{})
				if err != nil {
					t.Fatal(err)
				}
				servers, sockets = append(servers, s), append(sockets, path)
			}
			here, err := os.Getwd()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(ctx, python, "-B", "-X", "faulthandler", filepath.Join("tests", file))
			cmd.Env = append(os.Environ(), "PYTHONPATH="+here, "GRADNIC_LIBRARY="+so, "GRADNIC_TEST_SOCKETS="+strings.Join(sockets, ","))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			m := regexp.MustCompile(`Ran (\d+) tests`).FindSubmatch(out)
			if m == nil || strings.Contains(string(out), "skipped") {
				t.Fatalf("what ran?\n%s", out)
			}
			if n, _ := strconv.Atoi(string(m[1])); n < c.least {
				t.Fatalf("%d tests ran, there should be %d\n%s", n, c.least, out)
			}
		})
	}
}
