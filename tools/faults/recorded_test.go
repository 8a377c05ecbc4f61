package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

const recorded = `{"Action":"start","Package":"m/proxy"}
{"Action":"run","Package":"m/proxy","Test":"TestA"}
{"Action":"run","Package":"m/proxy","Test":"TestA/b"}
{"Action":"output","Package":"m/proxy","Test":"TestA/b","Output":"wrong text\n"}
{"Action":"fail","Package":"m/proxy","Test":"TestA/b","Elapsed":1.5}
{"Action":"pass","Package":"m/proxy","Test":"TestA/c","Elapsed":0.5}
{"Action":"skip","Package":"m/proxy","Test":"TestA/d"}
{"Action":"fail","Package":"m/proxy","Test":"TestA","Elapsed":2}
{"Action":"output","Package":"m/proxy","Output":"FAIL\tm/proxy\n"}
{"Action":"fail","Package":"m/proxy","Elapsed":2}
{"Action":"run","Package":"m/proxy/in","Test":"TestB"}
{"Action":"output","Package":"m/proxy/in","Test":"TestB","Output":"all is well\n"}
{"Action":"pass","Package":"m/proxy/in","Test":"TestB","Elapsed":3}
{"Action":"run","Package":"m/proxy/in","Test":"TestBegun"}
{"Action":"output","Package":"m/proxy/in","Output":"PASS\n"}
{"Action":"run","Package":"m/proxy/in","Test":"TestTwice"}
{"Action":"run","Package":"m/proxy/in","Test":"TestTwice/b"}
{"Action":"fail","Package":"m/proxy/in","Test":"TestTwice/b","Elapsed":9}
{"Action":"fail","Package":"m/proxy/in","Test":"TestTwice","Elapsed":9}
{"Action":"run","Package":"m/proxy/in","Test":"TestTwice"}
{"Action":"run","Package":"m/proxy/in","Test":"TestTwice/b"}
{"Action":"pass","Package":"m/proxy/in","Test":"TestTwice/b","Elapsed":1}
{"Action":"pass","Package":"m/proxy/in","Test":"TestTwice","Elapsed":1}
`

func TestRunOfAllTestsIsJudgedTestByTest(t *testing.T) {
	r := record{}
	if err := r.read(strings.NewReader(recorded)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		dir, test string
		want      verdict
		took      time.Duration
	}{
		{"proxy", "TestA", failed, 2 * time.Second},
		{"proxy", "TestA/b", failed, 1500 * time.Millisecond},
		{"proxy", "TestA/c", passed, 500 * time.Millisecond},
		{"proxy", "TestA/d", skipped, 0},
		{"proxy", "TestA/e", missing, 0},
		{"proxy", "TestB", missing, 0}, // of another package
		{"proxy/in", "TestB", passed, 3 * time.Second},
		{"proxy/in", "TestBegun", missing, 0},          // and not ended
		{"proxy/in", "TestTwice", passed, time.Second}, // the second time
		{"proxy/in", "TestTwice/b", passed, time.Second},
		{"router", "TestC", missing, 0},
	} {
		if got := r.judge(tc.dir, tc.test); got.verdict != tc.want || got.took != tc.took {
			t.Errorf("%s %s: %s in %v, want %s in %v", tc.dir, tc.test, got.verdict, got.took, tc.want, tc.took)
		}
	}
}

func TestBrokenRunIsAnError(t *testing.T) {
	for _, end := range []io.Reader{brokenReader{}, strings.NewReader("no JSON\n"), strings.NewReader(`{"Action":"pa`)} {
		if err := (record{}).read(io.MultiReader(strings.NewReader(recorded), end)); err == nil {
			t.Error("a run whose end cannot be read is taken for whole")
		}
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
