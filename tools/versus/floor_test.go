package versus

import (
	"testing"
	"time"
)

func TestFloorGrowsWithTheBytes(t *testing.T) {
	var all []Floor
	for range 10 { // a busy machine may hold up what is measured with few bytes
		var err error
		if all, err = measureFloor(20 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if small, large := all[0], all[len(all)-1]; large.WriteUs >= 10*small.WriteUs && large.ReadUs >= 10*small.ReadUs {
			break
		}
	}
	for i, f := range all {
		t.Logf("%+v", f)
		if f.WriteUs <= 0 || f.ReadUs <= 0 || f.Bytes != floorSizes[i] {
			t.Errorf("floor of %d bytes: %+v", floorSizes[i], f)
		}
	}
	if small, large := all[0], all[len(all)-1]; large.WriteUs < 10*small.WriteUs || large.ReadUs < 10*small.ReadUs {
		t.Errorf("%d bytes take %+v, %d bytes %+v", small.Bytes, small, large.Bytes, large)
	}
}
