package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	server "gradnic/host/nic"
	"gradnic/internal/clib"
	"gradnic/internal/ringlab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOnlyTheClient: the library holds the process's end, and nothing of a NIC.
func TestOnlyTheClient(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "gradnic/host/shm") {
		t.Errorf("what it is made of: %q", deps)
	}
	for _, dep := range deps {
		if strings.HasPrefix(dep, "gradnic/") && !slices.Contains([]string{"gradnic/host", "gradnic/host/capi", "gradnic/host/shm"}, dep) {
			t.Errorf("%s is in it", dep)
		}
	}
}

// TestC: two C programs, compiled with all warnings against gradnic.h, sum over a ring in memory; then their NICs go.
func TestC(t *testing.T) {
	so := clib.Build(t)
	dir := filepath.Dir(so)
	bin := filepath.Join(dir, "node")
	for _, compile := range [][]string{
		{"gcc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-I", dir, "-o", bin, "testdata/node.c", so, "-Wl,-rpath," + dir, "-lm"},
		{"gcc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", filepath.Join(dir, "gradnic.h")},
	} {
		if out, err := exec.Command(compile[0], compile[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", compile, err, out)
		}
	}
	const nodes = 2
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	ring, err := ringlab.NewMemory(ctx, nodes, nil)
	if err != nil {
		t.Fatal(err)
	}
	var servers []*server.Server
	stop := func() {
		if err := ring.Close(); err != nil {
			t.Error(err)
		}
		for _, s := range servers {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	defer func() { stop() }()
	var cmds []*exec.Cmd
	var outs []*bufio.Reader
	for i, n := range ring.Nodes {
		path := filepath.Join(dir, fmt.Sprint("nic", i))
		s, err := server.Listen(path, n.Ring, server.Options{})
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, s)
		cmd := exec.CommandContext(ctx, bin, path, fmt.Sprint(i), fmt.Sprint(nodes))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds, outs = append(cmds, cmd), append(outs, bufio.NewReader(out))
	}
	for i, out := range outs {
		if line, err := out.ReadString('\n'); line != "checked\n" {
			t.Errorf("node %d: %v: %s", i, err, line)
		}
	}
	time.Sleep(50 * time.Millisecond) // both are in the middle of all-reduces
	stop()
	stop = func() {}
	for i, cmd := range cmds {
		rest, err := io.ReadAll(outs[i])
		if werr := cmd.Wait(); err != nil || werr != nil || strings.TrimSpace(string(rest)) != "gone" {
			t.Errorf("node %d: %v, %v: %s", i, err, werr, rest)
		}
	}
}
