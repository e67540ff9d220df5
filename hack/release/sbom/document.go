/*
Copyright The Metacontroller Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package sbom

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/metacontroller/metacontroller-apiserver/hack/release/program"
)

const (
	source    = "https://github.com/metacontroller/metacontroller-apiserver"
	authors   = "The Metacontroller Authors"
	unknown   = "NOASSERTION"
	ourModule = "github.com/metacontroller/metacontroller-apiserver"
	license   = "Apache-2.0"
	// standardLibrary is how vulnerability databases name what Go itself brings into a program.
	standardLibrary = "stdlib"

	programID, imageID = "Program", "Image"
)

// A Release is what documents say of where they come from.
type Release struct {
	Version string
	// Date is the date of the commit.
	Date time.Time
}

// Program returns the document of a program.
func (r *Release) Program(p *program.Program) ([]byte, error) {
	sum := sha256.Sum256(p.Data)
	d := r.document(fmt.Sprintf("%s %s for %s", p.Name, r.Version, p.Platform), hex.EncodeToString(sum[:]))
	if err := d.addProgram(r, p); err != nil {
		return nil, fmt.Errorf("describing %s for %s: %w", p.Name, p.Platform, err)
	}
	d.relate("DOCUMENT", common.TypeRelationshipDescribe, programID)
	return d.encode()
}

// Image returns the document of the image of a program: base are the modules whose content it has beside the program, digest is the one
// of its manifest, sha256 and a colon in front.
func (r *Release) Image(p *program.Program, base []program.Module, digest string) ([]byte, error) {
	sum := strings.TrimPrefix(digest, "sha256:")
	d := r.document(fmt.Sprintf("image of %s %s for %s", p.Name, r.Version, p.Platform), sum)
	locator := fmt.Sprintf("pkg:oci/%s@%s?arch=%s&tag=%s", p.Name, url.QueryEscape(digest), p.Platform.Arch, url.QueryEscape(r.Version))
	d.Packages = append(d.Packages, ours(imageID, p.Name, r.Version, "CONTAINER", sum, locator))
	if err := d.addProgram(r, p); err != nil {
		return nil, fmt.Errorf("describing the image of %s for %s: %w", p.Name, p.Platform, err)
	}
	d.relate("DOCUMENT", common.TypeRelationshipDescribe, imageID)
	d.relate(imageID, common.TypeRelationshipContains, programID)
	for i := range base {
		id, err := d.addModule(base[i].Path, base[i].Version, &base[i])
		if err != nil {
			return nil, fmt.Errorf("describing the base of the image: %w", err)
		}
		d.relate(imageID, common.TypeRelationshipContains, id)
	}
	return d.encode()
}

// document is a document that is being made.
type document struct {
	v2_3.Document

	// modules are the identifiers of the modules that it has.
	modules map[string]bool
}

// document begins a document, whose namespace nobody else may have: it has the checksum of what is described.
func (r *Release) document(name, sum string) *document {
	return &document{modules: map[string]bool{}, Document: v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		DocumentNamespace: source + "/spdx/" + r.Version + "/" + sum,
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Organization", Creator: authors}, {CreatorType: "Tool", Creator: "hack/release-" + r.Version}},
			Created:  r.Date.UTC().Format(time.RFC3339),
		},
	}}
}

// ours is a package of ours.
func ours(id common.ElementID, name, version, purpose, sum, locator string) *v2_3.Package {
	return &v2_3.Package{
		PackageName: name, PackageSPDXIdentifier: id, PackageVersion: version, PrimaryPackagePurpose: purpose,
		PackageSupplier: &common.Supplier{SupplierType: "Organization", Supplier: authors}, PackageHomePage: source,
		PackageDownloadLocation: unknown, PackageLicenseConcluded: unknown, PackageLicenseDeclared: license, PackageCopyrightText: unknown,
		PackageChecksums:          []common.Checksum{{Algorithm: common.SHA256, Value: sum}},
		PackageExternalReferences: reference(locator),
	}
}

// addProgram adds a program and what is linked into it.
func (d *document) addProgram(r *Release, p *program.Program) error {
	sum := sha256.Sum256(p.Data)
	locator := fmt.Sprintf("pkg:golang/%s@%s#cmd/%s", ourModule, url.PathEscape(r.Version), p.Name)
	d.Packages = append(d.Packages, ours(programID, p.Name, r.Version, "APPLICATION", hex.EncodeToString(sum[:]), locator))
	folders := map[string]*program.Module{}
	for i := range p.Modules {
		folders[p.Modules[i].Path] = &p.Modules[i]
	}
	id, err := d.addModule(standardLibrary, strings.TrimPrefix(p.Info.GoVersion, "go"), folders[program.GoModule])
	if err != nil {
		return err
	}
	d.relate(programID, "DEPENDS_ON", id)
	for _, dependency := range p.Info.Deps {
		linked := dependency
		if dependency.Replace != nil {
			linked = dependency.Replace
		}
		id, err := d.addModule(linked.Path, linked.Version, folders[dependency.Path])
		if err != nil {
			return err
		}
		d.relate(programID, "DEPENDS_ON", id)
	}
	return nil
}

// addModule adds a module of others, once, and returns its identifier.
func (d *document) addModule(path, version string, with *program.Module) (common.ElementID, error) {
	id := identifier(path)
	if d.modules[string(id)] {
		return id, nil
	}
	d.modules[string(id)] = true
	if with == nil {
		return "", fmt.Errorf("nobody knows where the module %s is, nor its license", path)
	}
	licenses, err := recognize(with)
	if err != nil {
		return "", err
	}
	d.Packages = append(d.Packages, &v2_3.Package{
		PackageName: path, PackageSPDXIdentifier: id, PackageVersion: version, PrimaryPackagePurpose: "LIBRARY",
		PackageSupplier: &common.Supplier{Supplier: unknown}, PackageDownloadLocation: unknown, PackageLicenseConcluded: unknown,
		PackageLicenseDeclared: licenses, PackageCopyrightText: unknown,
		PackageExternalReferences: reference("pkg:golang/" + strings.ToLower(path) + "@" + url.PathEscape(version)),
	})
	return id, nil
}

// unidentified are the characters that an identifier of SPDX cannot have.
var unidentified = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// identifier is the identifier of a module.
func identifier(path string) common.ElementID {
	return common.ElementID("Module-" + unidentified.ReplaceAllString(path, "-"))
}

// reference is what vulnerability scanners find a package by.
func reference(locator string) []*v2_3.PackageExternalReference {
	return []*v2_3.PackageExternalReference{{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: locator}}
}

// relate says how two elements of the document are related.
func (d *document) relate(a common.ElementID, relationship string, b common.ElementID) {
	d.Relationships = append(d.Relationships, &v2_3.Relationship{
		RefA: common.DocElementID{ElementRefID: a}, RefB: common.DocElementID{ElementRefID: b}, Relationship: relationship,
	})
}

// encode returns the document as indented JSON.
func (d *document) encode() ([]byte, error) {
	encoded, err := json.MarshalIndent(&d.Document, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding a document of SPDX: %w", err)
	}
	return append(encoded, '\n'), nil
}
