// The polynomials of a step at all sizes, in the summary and in report.json.
#ifndef TALLY_IO_SUMMARY_POLYNOMIALS_H_
#define TALLY_IO_SUMMARY_POLYNOMIALS_H_

#include <string>

#include "tally/io/json.h"
#include "tally/io/report.h"

namespace tally {

// Each figure's polynomial, where it holds and at which sizes that was tried; why there is none.
std::string PolynomialsSummary(const Report& report);

// {forward backward ... saved peak domain fitted checked holds failures}, null without. A figure is
// a list of pieces [{sequence text terms[{coefficient batch sequence}]}], a coefficient an integer
// or [num,den]; a peak has greatest_of[{text node terms}] in place of text and terms.
Json PolynomialsJson(const Report& report);

}  // namespace tally

#endif  // TALLY_IO_SUMMARY_POLYNOMIALS_H_
