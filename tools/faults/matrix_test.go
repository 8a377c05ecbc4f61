package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"xpyd/tools/overlay"
)

// rowsWanted is how many rows the matrix has.
const rowsWanted = 49

func TestMatrixHasEveryRowOnce(t *testing.T) {
	rows := matrix()
	if len(rows) != rowsWanted {
		t.Errorf("%d rows, want %d", len(rows), rowsWanted)
	}
	for i, r := range rows {
		if want := fmt.Sprint("T", i+1); r.id != want || r.what == "" {
			t.Errorf("row %d is %q: %q, want %s with a text", i, r.id, r.what, want)
		}
		for _, test := range r.alone {
			if slices.Contains(r.tests, test) {
				t.Errorf("%s: %s needs a prefill, and does not", r.id, test)
			}
		}
	}
}

// A renamed test is found here, before the matrix is run.
func TestMatrixNamesTestsThatExist(t *testing.T) {
	index, err := overlay.Read(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range testsOf(matrix()) {
		if _, err := index.TestDir(test); err != nil {
			t.Error(err)
		}
	}
}
