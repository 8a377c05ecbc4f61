package main

import (
	"bytes"
	"os"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// The list has the program, Go's library, and each module with the address by which scanners know it.
func TestListOfThisProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := list(&out, self); err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&out, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.Metadata == nil || bom.Metadata.Component == nil || bom.Components == nil {
		t.Fatal("the document is empty")
	}
	versions := map[string]string{}
	for _, c := range *bom.Components {
		versions[c.Name] = c.Version
		if want := "pkg:golang/" + c.Name + "@" + c.Version; c.PackageURL != want {
			t.Errorf("%s has the address %q", c.Name, c.PackageURL)
		}
	}
	for _, name := range []string{"std", "github.com/CycloneDX/cyclonedx-go"} {
		if versions[name] == "" {
			t.Errorf("%s is missing: %v", name, versions)
		}
	}
}
