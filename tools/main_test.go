package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"xpyd/cmd"
)

// actAsProgram makes the test binary the program that is measured, and this one.
const actAsProgram = "TEST_BINARY_IS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(actAsProgram) == "" {
		os.Exit(m.Run())
	}
	switch args := os.Args[1:]; args[0] {
	case "serve", "version":
		os.Exit(cmd.Run(args))
	default:
		os.Exit(run(args))
	}
}

// ownProcess names the test for which a process was started.
const ownProcess = "TEST_OF_THIS_PROCESS"

// inOwnProcess runs t in a process of its own, beside other tests. A test needs that if it looks at
// its whole process, or changes what belongs to it. inOwnProcess reports whether this is that
// process. In the other process the test is then over.
func inOwnProcess(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownProcess) == t.Name() {
		return true
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), testBinary(t), "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), ownProcess+"="+t.Name())
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// call runs a command of the program and returns what it writes.
func call(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := newRootCmd()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}
