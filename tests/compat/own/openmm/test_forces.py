"""OpenMM's CUDA platform against its Reference platform: a peptide, alone and in water."""

import os

import numpy as np
import openmm as mm
import pytest
from openmm import app, unit

FORCE = unit.kilojoule_per_mole / unit.nanometer
DATA = os.path.join(os.path.dirname(app.__file__), "data")


def peptide(method, **more):
    pdb = app.PDBFile(os.path.join(DATA, "test.pdb"))
    field = app.ForceField("amber99sb.xml", "tip3p.xml", *more.pop("files", ()))
    system = field.createSystem(pdb.topology, nonbondedMethod=method, **more)
    return system, pdb.positions


def evaluated(name, system, positions):
    """Returns forces and energy on the platform of that name."""
    platform = mm.Platform.getPlatformByName(name)
    context = mm.Context(system, mm.VerletIntegrator(0.001), platform)
    context.setPositions(positions)
    state = context.getState(getForces=True, getEnergy=True)
    forces = state.getForces(asNumpy=True).value_in_unit(FORCE)
    return forces, state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)


def compare(system, positions, tolerance=1e-4):
    forces, energy = evaluated("CUDA", system, positions)
    expected, expected_energy = evaluated("Reference", system, positions)
    error = np.linalg.norm(forces - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert np.median(error) < tolerance
    assert np.isclose(energy, expected_energy, rtol=1e-4, atol=0.1)


@pytest.mark.parametrize("constraints", [None, app.HBonds], ids=["free", "bonds of hydrogen"])
def test_without_cutoff(constraints):
    compare(*peptide(app.NoCutoff, constraints=constraints))


def test_with_cutoff():
    compare(*peptide(app.CutoffNonPeriodic, nonbondedCutoff=0.9 * unit.nanometer))


def test_periodic():
    compare(*peptide(app.CutoffPeriodic, nonbondedCutoff=0.9 * unit.nanometer))


def test_particle_mesh_ewald():
    compare(*peptide(app.PME, nonbondedCutoff=0.9 * unit.nanometer))


def test_custom_bonds():
    system = mm.System()
    for _ in range(40):
        system.addParticle(1.0)
    force = mm.CustomBondForce("k*(r-r0)^4 + sin(r)")
    force.addGlobalParameter("k", 3.0)
    force.addPerBondParameter("r0")
    for i in range(39):
        force.addBond(i, i + 1, [0.1 + 0.01 * i])
    system.addForce(force)
    compare(system, np.random.default_rng(4).random((40, 3)))


def test_energy_is_kept():
    """A hundred steps of a chain without friction."""
    system = mm.System()
    force = mm.HarmonicBondForce()
    for i in range(20):
        system.addParticle(2.0)
        if i:
            force.addBond(i - 1, i, 0.1, 500.0)
    system.addForce(force)
    context = mm.Context(system, mm.VerletIntegrator(0.001), mm.Platform.getPlatformByName("CUDA"))
    context.setPositions([(0.12 * i, 0.01 * (i % 3), 0.0) for i in range(20)])

    def total():
        state = context.getState(getEnergy=True)
        both = state.getPotentialEnergy() + state.getKineticEnergy()
        return both.value_in_unit(unit.kilojoule_per_mole)

    before = total()
    context.getIntegrator().step(100)
    assert np.isclose(total(), before, rtol=1e-3)
