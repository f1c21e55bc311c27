package rtl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gradnic/internal/tooltest"
)

// build is where run.sh keeps what it compiles, for all tests.
var build string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rtl")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	build = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// all asks for every simulator and all of the traffic, which takes minutes: make rtl.
func all() bool { return os.Getenv("GRADNIC_RTL") == "all" }

// simulators are those that tests run on.
func simulators() []string {
	if all() {
		return []string{"iverilog", "verilator"}
	}
	return []string{"iverilog"}
}

// simulation is an aggregator at the other end of a pipe.
type simulation struct {
	t   *testing.T
	in  io.WriteCloser
	out io.ReadCloser
	cmd *exec.Cmd
	err bytes.Buffer
}

// start runs the aggregator of a protocol by run.sh, until the test ends.
func start(t *testing.T, simulator, protocol string, plusargs ...string) *simulation {
	t.Helper()
	tooltest.Need(t, simulator)
	s := &simulation{t: t, cmd: exec.Command("./run.sh", plusargs...)}
	s.cmd.Env = append(os.Environ(), "SIM="+simulator, "PROTOCOL="+protocol, "RTL_BUILD="+build)
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if s.out, err = s.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	s.cmd.Stderr = &s.err
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// One that hangs is an error of the test, not of its time limit.
	watch := time.AfterFunc(5*time.Minute, func() { _ = s.cmd.Process.Kill() })
	t.Cleanup(func() {
		_ = s.in.Close()
		rest, _ := io.ReadAll(s.out)
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("run.sh: %v\n%s", err, s.err.String())
		}
		if simulator == "iverilog" && strings.Contains(s.err.String(), "warning") {
			t.Errorf("iverilog warns:\n%s", s.err.String())
		}
		watch.Stop()
		if len(rest) > 0 {
			t.Errorf("%d bytes were put out after the last answer: %q", len(rest), rest[:min(len(rest), 200)])
		}
	})
	return s
}

func (s *simulation) write(frame []byte) error {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(frame)), uint32(len(frame)))
	_, err := s.in.Write(append(b, frame...))
	return err
}

// read returns one frame; nil is the answer to a flush.
func (s *simulation) read() ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(s.out, length[:]); err != nil {
		return nil, fmt.Errorf("read a length: %w", err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > 1<<16 {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	if n == 0 {
		return nil, nil
	}
	frame := make([]byte, n)
	if _, err := io.ReadFull(s.out, frame); err != nil {
		return nil, fmt.Errorf("read a frame of %d bytes: %w", n, err)
	}
	return frame, nil
}

// exchange sends frames, flushes, and returns what came out until the answer.
func (s *simulation) exchange(frames ...[]byte) (out [][]byte) {
	s.t.Helper()
	// By a goroutine, since both ends would wait for ever on two full pipes.
	wrote := make(chan error, 1)
	go func() {
		var err error
		for _, f := range frames {
			err = errors.Join(err, s.write(f))
		}
		wrote <- errors.Join(err, s.write(nil))
	}()
	for {
		frame, err := s.read()
		if err != nil {
			s.t.Fatalf("%v\n%s", err, s.err.String())
		}
		if frame == nil {
			break
		}
		out = append(out, frame)
	}
	if err := <-wrote; err != nil {
		s.t.Fatal(err)
	}
	return out
}

// The Verilog is clean to a stricter reader than the simulator.
func TestLint(t *testing.T) {
	tooltest.Need(t, "verilator")
	sources, err := filepath.Glob("*.v")
	if err != nil {
		t.Fatal(err)
	}
	for _, top := range []string{"switchml_aggregator", "native_aggregator"} {
		args := []string{"--lint-only", "-Wall", "--top-module", top}
		for _, s := range sources {
			if !strings.Contains(s, "pipe") { // a test bench: not for synthesis
				args = append(args, s)
			}
		}
		if out, err := exec.Command("verilator", args...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", top, err, out)
		}
	}
}

// Yosys makes hardware of it, with memories as memories and without a latch. It takes a minute: make rtl.
func TestSynthesis(t *testing.T) {
	if !all() {
		t.Skip("only with GRADNIC_RTL=all")
	}
	if _, err := exec.LookPath("yosys"); err != nil {
		t.Skip("yosys is not installed")
	}
	sources, err := filepath.Glob("*.v")
	if err != nil {
		t.Fatal(err)
	}
	sources = slices.DeleteFunc(sources, func(s string) bool { return s == "pipe.v" })
	for _, top := range []string{"switchml_aggregator", "native_aggregator"} {
		script := fmt.Sprintf("read_verilog %s; chparam -set SLOT 5 %s; synth_xilinx -top %[2]s -noiopad; select -assert-none t:$dlatch t:LD*; select -assert-min 32 t:RAMB36E1",
			strings.Join(sources, " "), top)
		if out, err := exec.Command("yosys", "-q", "-p", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", top, err, out)
		}
	}
}
