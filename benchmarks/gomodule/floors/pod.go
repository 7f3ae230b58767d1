package main

import (
	"fmt"
	"math/big"
	"strings"
)

// pod is as much of one as the decision needs.
type pod struct {
	Metadata struct {
		UID       string            `json:"uid"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
		Owners    []struct {
			Kind       string `json:"kind"`
			Controller bool   `json:"controller"`
		} `json:"ownerReferences"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Priority       int32             `json:"priority"`
		Containers     []container       `json:"containers"`
		InitContainers []container       `json:"initContainers"`
		Overhead       map[string]string `json:"overhead"`
	} `json:"spec"`
}

type container struct {
	RestartPolicy string `json:"restartPolicy"`
	Resources     struct {
		Requests map[string]string `json:"requests"`
	} `json:"resources"`
}

// alwaysPasses is true of pods without which a node does not work.
func (p *pod) alwaysPasses() bool {
	for _, owner := range p.Metadata.Owners {
		if owner.Controller && owner.Kind == "DaemonSet" {
			return true
		}
	}
	_, mirror := p.Metadata.Annotations["kubernetes.io/config.mirror"]
	return mirror || p.Spec.Priority >= 2_000_000_000
}

// request is the pod's effective request: containers and sidecars together, or the largest initialisation.
func (p *pod) request() (amounts, error) {
	var sum, sidecars, largest amounts
	for i := range p.Spec.InitContainers {
		asked, err := amountsOf(p.Spec.InitContainers[i].Resources.Requests)
		if err != nil {
			return sum, err
		}
		for dim := range asked {
			if p.Spec.InitContainers[i].RestartPolicy == "Always" {
				sidecars[dim] += asked[dim]
				largest[dim] = max(largest[dim], sidecars[dim])
			} else {
				largest[dim] = max(largest[dim], sidecars[dim]+asked[dim])
			}
		}
	}
	for i := range p.Spec.Containers {
		asked, err := amountsOf(p.Spec.Containers[i].Resources.Requests)
		if err != nil {
			return sum, err
		}
		for dim := range asked {
			sum[dim] += asked[dim]
		}
	}
	overhead, err := amountsOf(p.Spec.Overhead)
	for dim := range sum {
		sum[dim] = max(sum[dim]+sidecars[dim], largest[dim]) + overhead[dim]
	}
	sum[2] = 1
	return sum, err
}

func amountsOf(requests map[string]string) (amounts, error) {
	var found amounts
	for name, text := range requests {
		var err error
		switch name {
		case "cpu":
			found[0], err = quantity(text, 1000)
		case "memory":
			found[1], err = quantity(text, 1)
		}
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

var units = map[string]int64{
	"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60,
}

// quantity is what is written, in thousandths (scale 1000) or in ones (scale 1), rounded up.
func quantity(text string, scale int64) (int64, error) {
	digits := strings.TrimRight(text, "numkKMGTPEi")
	suffix := text[len(digits):]
	whole := int64(0)
	plain := digits != "" && len(digits) < 16
	for _, digit := range digits {
		plain = plain && '0' <= digit && digit <= '9'
		whole = whole*10 + int64(digit-'0')
	}
	if unit, known := units[suffix]; known && plain && whole < 1<<62/(unit*scale) {
		return whole * unit * scale, nil
	}
	if suffix == "m" && plain {
		return (whole*scale + 999) / 1000, nil
	}
	exact, ok := new(big.Rat).SetString(digits)
	if !ok {
		return 0, fmt.Errorf("%q is no quantity", text)
	}
	below := map[string]int64{"m": 1e3, "u": 1e6, "n": 1e9}[suffix]
	switch unit, known := units[suffix]; {
	case known:
		exact.Mul(exact, new(big.Rat).SetInt64(unit))
	case below > 0:
		exact.Quo(exact, new(big.Rat).SetInt64(below))
	default:
		return 0, fmt.Errorf("%q has an unknown suffix", text)
	}
	exact.Mul(exact, new(big.Rat).SetInt64(scale))
	up := new(big.Int).Add(exact.Num(), new(big.Int).Sub(exact.Denom(), big.NewInt(1)))
	return up.Div(up, exact.Denom()).Int64(), nil
}
